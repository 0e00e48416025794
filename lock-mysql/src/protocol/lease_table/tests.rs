use lock_core::backend::request::{RequestOptions, Terms};

use super::*;
use crate::protocol::{Job, StatementResult};

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

/// Whatever it has: a hold, a mark, or both.
#[test]
fn an_id_that_is_abandoned_has_neither_a_hold_nor_a_mark() {
    let terms = terms(1, None);
    let sql = LeaseStatements::new("t").abandon(&name("a"), terms.holder);
    assert_eq!(
        shown(&sql, &terms),
        "UPDATE `t_leases` SET `expires`=IF(`holder`<=>'ME',NOW+0*LAST_INSERT_ID(`sleeper`*(`wanted`>NOW)),`expires`),\
         `label`=IF(`holder`<=>'ME',NULL,`label`),`holder`=IF(`holder`<=>'ME',NULL,`holder`),\
         `wanted`=IF(`waiter`<=>'ME',0,`wanted`) WHERE `name`=x'61' AND (`holder`='ME' OR `waiter`='ME')"
    );
}

/// Another waiter may have left its mark since.
#[test]
fn the_mark_of_a_connection_that_is_gone_is_removed_and_no_other() {
    assert_eq!(
        LeaseStatements::new("t").unmark(&name("a"), 7),
        "UPDATE `t_leases` SET `wanted`=0 WHERE `name`=x'61' AND `sleeper`=7"
    );
}

/// Other versions of this crate sleep and wake by the same name. One statement finds the connection and wakes it.
#[test]
fn a_connection_that_sleeps_is_found_by_its_named_lock() {
    assert_eq!(sleeper_lock(7), "'polylock:sleeper:7'");
    assert_eq!(wake(7), "KILL QUERY IS_USED_LOCK('polylock:sleeper:7')");
}

const WANTED: &str = "(`wanted`>NOW AND `wanted`<=NOW+10000000)";

#[test]
fn a_name_that_is_free_or_that_nobody_waits_for_may_be_asked_for() {
    let sql = LeaseStatements::new("t").free_for(&[name("a"), name("b")]);
    assert_eq!(
        shown(&sql, &terms(1, None)),
        format!(
            "SELECT `name`,IF({WANTED},`waiter`,NULL) FROM `t_leases` WHERE `name` IN (x'61',x'62') \
             AND ((`holder` IS NULL OR `expires`<=LEAST(NOW,SYSDATE)) OR NOT {WANTED})"
        )
    );
}

/// No lock has an empty name.
#[test]
fn a_check_of_permissions_changes_no_row_and_leaves_none_out() {
    let check = LeaseStatements::new("t").check_permissions();
    assert!(check.iter().all(|sql| sql.ends_with(" WHERE `name`=x''")), "{check:?}");
    for table in ["t_leases", "t_lease_holders"] {
        for begin in ["UPDATE", "INSERT IGNORE INTO"] {
            let begin = format!("{begin} `{table}` ");
            assert!(check.iter().any(|sql| sql.starts_with(&begin)), "{begin}: {check:?}");
        }
    }
}

/// Holds of names that are shared count while the name's row says that it is shared.
#[test]
fn the_holders_are_the_one_alone_or_those_who_share_the_name() {
    let terms = terms(1, None);
    let sql = shown(&LeaseStatements::new("t").holders(&name("a")), &terms);
    let (alone, shared) = sql.split_once(" UNION ALL ").expect("two tables");
    let of_one = "FROM `t_leases` WHERE `name`=x'61' AND `holder` IS NOT NULL \
                  AND `holder` NOT IN ('shared','permits') AND `expires`>NOW";
    assert!(alone.ends_with(of_one), "{alone}");
    let of_all = "FROM `t_leases` l STRAIGHT_JOIN `t_lease_holders` h ON h.`name`=l.`name` AND h.`expires`>NOW \
                  WHERE l.`name`=x'61' AND l.`holder` IN ('shared','permits') AND l.`expires`>NOW ORDER BY 1";
    assert!(shared.ends_with(of_all), "{shared}");
}

#[test]
fn a_name_is_listed_as_used_if_somebody_has_it_or_waits_for_it() {
    let sql = LeaseStatements::new("t").list(&ListFrom::all(), 7);
    let used = format!("CAST((`holder` IS NOT NULL AND `expires`>NOW) OR {WANTED} AS SIGNED) FROM `t_leases` l");
    assert!(shown(&sql, &terms(1, None)).contains(&used), "{sql}");
}

/// A token as young as that would be given again if the clock were set back.
#[test]
fn a_row_is_dead_when_its_hold_and_its_last_token_are_old() {
    let statements = LeaseStatements::new("t");
    let [leases, holders] = statements.dead_rows(Duration::from_micros(100));
    let sql = |job| match job {
        Job::Statement(sql) => sql,
        Job::Transaction(statements) => statements.join(";"),
        Job::Renew(..) => panic!("no renewal"),
    };
    let of = |job| shown(&sql(job), &terms(1, None));
    let dead = "((`holder` IS NULL OR `expires`<=LEAST(NOW,SYSDATE)) AND `expires`<NOW-100 AND `last_token`<NOW-100)";
    assert_eq!(
        of(leases.after(&leases.first_key(), 9)),
        format!(
            "SELECT `name`,CAST({dead} AS SIGNED) FROM `t_leases` WHERE `name`>x'' AND `name`<x'ff' ORDER BY `name` LIMIT 9"
        )
    );
    assert_eq!(
        of(holders.after(&holders.first_key(), 9)),
        "SELECT `name`,`holder`,CAST(`expires`<NOW-100 AS SIGNED) FROM `t_lease_holders` \
         WHERE `name`>=x'' AND (`name`>x'' OR `holder`>x'') AND `name`<x'ff' ORDER BY `name`,`holder` LIMIT 9"
    );
    assert_eq!(
        of(holders.delete(&vec![b"a".to_vec(), b"b".to_vec()])),
        "SELECT 1 FROM `t_lease_holders` WHERE `name`=x'61' AND `holder`=x'62' FOR UPDATE NOWAIT;\
         DELETE FROM `t_lease_holders` WHERE `name`=x'61' AND `holder`=x'62' AND `expires`<NOW-100"
    );
    // Deletes nothing, but needs the permission to.
    assert_eq!(of(leases.check_delete()), "DELETE FROM `t_leases` WHERE `name`=x''");
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

#[test]
fn an_update_that_matches_no_row_has_granted_and_ended_nothing() {
    let result = |matched, last_insert_id| StatementResult {
        matched,
        last_insert_id,
        ..StatementResult::default()
    };
    assert_eq!(granted(&result(0, 7)).unwrap(), None);
    assert_eq!(granted(&result(1, 7)).unwrap(), FencingToken::new(7));
    assert!(granted(&result(1, 0)).is_err(), "no token is 0");
    assert_eq!(
        (released(&result(0, 7)), released(&result(1, 7))),
        ((false, 0), (true, 7))
    );
}
