use lock_core::backend::request::{RequestOptions, Terms};

use super::*;
use crate::protocol::StatementResult;

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn terms(reserve: u32, floor: Option<u64>) -> LeaseTerms {
    let options = RequestOptions::new(name("a"), Terms::new(Duration::from_millis(2500)).label("me")).reserve(reserve);
    let options = match floor.and_then(FencingToken::new) {
        Some(floor) => options.token_above(floor),
        None => options,
    };
    LeaseTerms::new(&options.start().0)
}

/// With the clocks shortened, so that the statements can be read.
fn shown(sql: &str, terms: &LeaseTerms) -> String {
    sql.replace(NOW, "NOW")
        .replace("TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6))", "SYSDATE")
        .replace(&terms.holder.to_string(), "ME")
}

#[test]
fn a_free_name_is_taken_by_a_short_statement() {
    let with_all = terms(3, Some(41));
    let sql = LeaseStatements::new("t").take_free(&name("a"), &with_all);
    assert_eq!(
        shown(&sql, &with_all),
        "UPDATE `t_leases` SET `token`=LAST_INSERT_ID(GREATEST(`last_token`+1,42,NOW)),\
         `last_token`=`token`+LEAST(2,9223372036854775807-`token`),`label`=x'6d65',`term`=2500000,\
         `holder`='ME',`expires`=NOW+2500000 WHERE `name`=x'61' AND GREATEST(`expires`,`wanted`)<=LEAST(NOW,SYSDATE)"
    );
    let plain = terms(1, None);
    let sql = LeaseStatements::new("t").take_free(&name("a"), &plain);
    let tokens = "SET `token`=LAST_INSERT_ID(GREATEST(`last_token`+1,NOW)),`last_token`=`token`,";
    assert!(shown(&sql, &plain).contains(tokens), "{sql}");
}

#[test]
fn a_try_takes_a_free_name_or_changes_nothing() {
    let terms = terms(3, Some(41));
    let sql = LeaseStatements::new("t").acquire(&name("a"), &terms, None);
    let free = "(`holder` IS NULL OR `expires`<=LEAST(NOW,SYSDATE))";
    let others = "(`wanted`>NOW AND `wanted`<=NOW+10000000 AND NOT `waiter`<=>'ME')";
    let granted = "`token`>`last_token`";
    let last = "`token`+LEAST(2,9223372036854775807-`token`)";
    let repaired = "LEAST(`expires`,SYSDATE+`term`)";
    assert_eq!(
        shown(&sql, &terms),
        format!(
            "INSERT INTO `t_leases` (`name`,`holder`,`label`,`term`,`expires`,`token`,`last_token`) \
             VALUES (x'61','ME',x'6d65',2500000,NOW+2500000,LAST_INSERT_ID(GREATEST(1,42,NOW)),{last}) \
             ON DUPLICATE KEY UPDATE \
             `token`=CASE WHEN {free} AND NOT {others} THEN LAST_INSERT_ID(GREATEST(`last_token`+1,42,NOW)) \
             WHEN `holder`='ME' AND `expires`>NOW THEN LAST_INSERT_ID(`token`) \
             ELSE LEAST(`token`,`last_token`)+0*LAST_INSERT_ID(9223372036854775808|\
             IF({free},`wanted`-NOW,GREATEST(0,LEAST(`expires`-NOW,`term`)))) END,\
             `label`=IF({granted},x'6d65',`label`),\
             `term`=CASE WHEN {granted} THEN 2500000 \
             WHEN `holder`='ME' AND `expires`>NOW THEN GREATEST(`term`,2500000) ELSE `term` END,\
             `wanted`=IF({granted},0,`wanted`),\
             `holder`=IF({granted},'ME',IF({free},NULL,`holder`)),\
             `expires`=CASE WHEN {granted} THEN NOW+2500000 \
             WHEN `holder`='ME' THEN GREATEST({repaired},NOW+2500000) ELSE {repaired} END,\
             `last_token`=IF({granted},{last},`last_token`)"
        )
    );
}

#[test]
fn a_waiter_marks_the_row_before_the_holder_changes() {
    let terms = terms(1, None);
    let mark = Mark {
        lasts: Duration::from_millis(300),
        sleeper: 7,
    };
    let sql = LeaseStatements::new("t").acquire(&name("a"), &terms, Some(mark));
    let granted = "`token`>`last_token`";
    let others = "(`wanted`>NOW AND `wanted`<=NOW+10000000 AND NOT `waiter`<=>'ME')";
    let marks = format!(
        "`waiter`=IF({granted} OR `holder`='ME' OR {others},`waiter`,'ME'),\
         `sleeper`=IF(`waiter`<=>'ME',7,`sleeper`),\
         `wanted`=CASE WHEN {granted} THEN 0 WHEN `holder`='ME' OR NOT `waiter`<=>'ME' \
         OR `wanted` BETWEEN NOW+262500 AND NOW+10000000 THEN `wanted` ELSE NOW+300000 END,`holder`=IF("
    );
    let shown = shown(&sql, &terms);
    assert!(shown.contains(&marks), "{shown}");
    assert!(
        shown.contains(&format!(
            "(9223372036854775808|IF({free},",
            free = "(`holder` IS NULL OR `expires`<=LEAST(NOW,SYSDATE))"
        )),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("|IF({others},0,4611686018427387904)) END")),
        "{shown}"
    );
}

#[test]
fn renewals_of_one_time_are_one_statement() {
    let ttl = Duration::from_secs(1);
    let renewal = |of| HoldRenewal {
        name: name(of),
        holder: terms(1, None).holder,
        ttl,
        is_shared: false,
        is_alone: false,
    };
    let renewals = [renewal("a"), renewal("b")];
    let [a, b] = [0, 1].map(|index: usize| renewals[index].holder);
    let statements = LeaseStatements::new("t");
    let among = format!("`name` IN (x'61',x'62') AND `holder` IN ('{a}','{b}') AND `expires`>NOW");
    let set =
        "SET l.`term`=GREATEST(l.`term`,1000000),l.`expires`=GREATEST(LEAST(`expires`,SYSDATE+`term`),NOW+1000000)";
    assert_eq!(
        shown(&statements.renew(ttl, &renewals, Rows::Locked), &terms(1, None)),
        format!("UPDATE `t_leases` l {set} WHERE {among}")
    );
    let skips = "LIMIT 2 FOR UPDATE SKIP LOCKED";
    assert_eq!(
        shown(&statements.renew(ttl, &renewals, Rows::SkipLocked), &terms(1, None)),
        format!(
            "UPDATE (SELECT `name` FROM `t_leases` WHERE {among} {skips}) f \
             STRAIGHT_JOIN `t_leases` l ON l.`name`=f.`name` {set}"
        )
    );
}

#[test]
fn a_release_ends_or_keeps() {
    let terms = terms(1, None);
    let released = |keep| {
        let sql = LeaseStatements::new("t").release(&name("a'\0Ö"), terms.holder, keep);
        shown(&sql, &terms)
    };
    let of_me = " WHERE `name`=x'612700c396' AND `holder`='ME' AND `expires`>NOW";
    assert_eq!(
        released(None),
        format!("UPDATE `t_leases` SET `holder`=NULL,`expires`=NOW+0*LAST_INSERT_ID(`sleeper`*(`wanted`>NOW)){of_me}")
    );
    assert_eq!(
        released(Some(Duration::from_secs(1))),
        format!("UPDATE `t_leases` SET `holder`=x'',`label`=NULL,`term`=1000000,`expires`=NOW+1000000{of_me}")
    );
}

#[test]
fn a_token_is_adopted_without_the_clock() {
    let adopting = |floor: Option<u64>| {
        let options = RequestOptions::new(name("a"), Terms::new(Duration::from_secs(1)));
        let options = match floor.and_then(FencingToken::new) {
            Some(floor) => options.token_above(floor),
            None => options,
        };
        LeaseTerms::new(&options.token_at_least(FencingToken::new(70).unwrap()).start().0)
    };
    assert_eq!(
        adopting(None).next_token("`last_token`+1"),
        "GREATEST(`last_token`+1,70)"
    );
    assert_eq!(
        adopting(Some(41)).next_token("`last_token`+1"),
        "GREATEST(`last_token`+1,42,70)"
    );
}

#[test]
fn a_raise_changes_the_row_of_its_holder_alone() {
    let terms = terms(1, None);
    let sql = LeaseStatements::new("t").raise(&name("a"), terms.holder, FencingToken::new(70).unwrap());
    assert_eq!(
        shown(&sql, &terms),
        "UPDATE `t_leases` SET `token`=GREATEST(`token`,70),`last_token`=GREATEST(`last_token`,70) \
         WHERE `name`=x'61' AND `holder`='ME' AND `expires`>NOW"
    );
}

#[test]
fn tokens_are_reserved_up_to_the_last_one() {
    let reserved = |asked, token| terms(asked, None).reserved(FencingToken::new(token).unwrap());
    assert_eq!([reserved(1, 7), reserved(4, 7), reserved(99, 7)], [1, 4, 17]);
    assert_eq!([reserved(4, LAST_TOKEN), reserved(4, LAST_TOKEN - 2)], [1, 3]);
}

#[test]
fn an_answer_is_a_token_or_how_long_the_name_is_taken() {
    let answer = |last_insert_id| {
        acquired(&StatementResult {
            last_insert_id,
            ..StatementResult::default()
        })
    };
    let token = FencingToken::new(1_800_000_000_000_000).unwrap();
    assert_eq!(answer(token.as_u64()).unwrap(), Acquired::Granted(token));
    let taken = |millis, is_marked| {
        let rest = Duration::from_millis(millis);
        Acquired::Taken(Taken { rest, is_marked })
    };
    assert_eq!(answer(TAKEN | 1_500_000).unwrap(), taken(1500, false));
    assert_eq!(answer(TAKEN | MARKED | 1_500_000).unwrap(), taken(1500, true));
    assert_eq!(answer(TAKEN).unwrap(), taken(0, false));
    assert!(answer(0).is_err());
}
