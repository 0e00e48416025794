use lock_core::backend::request::{RequestOptions, Terms};

use super::*;
use crate::protocol::RenewalStatements;
use crate::protocol::lease_table::{HoldRenewal, Rows};
use crate::protocol::rows::{Value, row};

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn terms() -> LeaseTerms {
    let options = RequestOptions::new(name(), Terms::new(Duration::from_millis(2500)).label("me"));
    LeaseTerms::new(&options.start().0)
}

fn permits(take: u32, of: u32) -> Sharing {
    Sharing::Permits(Permits::new(take, of).unwrap())
}

/// With the clocks and the condition shortened, so that the statements can be read.
fn shown(statements: &[String], holder: HolderId) -> Vec<String> {
    let short = |sql: &String| {
        sql.replace(NOW, "NOW")
            .replace(CLOCK, "CLOCK")
            .replace(IS_SHARED, "SHARED")
            .replace(&holder.to_string(), "ME")
    };
    statements.iter().map(short).collect()
}

const LOCK: [&str; 2] = [
    "SELECT COUNT(*),MAX(`holder`),MAX(`expires`),MAX(`term`),MAX(`last_token`),MAX(`waiter`),MAX(`wanted`),\
     MAX(`sleeper`),MAX(`label`) \
     INTO @found,@holder,@expires,@term,@last,@waiter,@wanted,@sleeper,@label \
     FROM `t_leases` WHERE `name`=x'61' FOR UPDATE",
    "SET @now=NOW",
];

const LOOK: [&str; 2] = [
    "UPDATE `t_lease_holders` SET `expires`=IF(SHARED,@now+`term`,0) \
     WHERE `name`=x'61' AND `expires`>@now+IF(SHARED,`term`,0) AND @found>0",
    "SELECT COUNT(*),COALESCE(SUM(`permits`),0),MIN(`expires`),COALESCE(MAX(`expires`),0),COALESCE(MAX(`term`),0),\
     MAX(IF(`holder`='ME',`token`,NULL)) INTO @holders,@taken,@first,@ends,@longest,@mine \
     FROM `t_lease_holders` WHERE `name`=x'61' AND `expires`>@now",
];

#[test]
fn a_reader_locks_the_row_looks_decides_and_enters() {
    let terms = terms();
    let statements = LeaseStatements::new("t").share(&name(), &terms, Sharing::Readers, None);
    let others = "(@wanted>@now AND @wanted<=@now+10000000 AND NOT @waiter<=>'shared')";
    let expected = [
        LOCK[0].to_owned(),
        LOCK[1].to_owned(),
        LOOK[0].to_owned(),
        LOOK[1].to_owned(),
        format!(
            "SET @granted=CASE WHEN @found=0 THEN 0 WHEN @mine IS NOT NULL THEN 2 WHEN {others} THEN 0 \
             WHEN @holder IS NULL OR @expires<=@now OR (SHARED AND @holders=0) THEN 1 \
             WHEN @holder='shared' THEN 1 ELSE 0 END,\
             @token=COALESCE(@mine,GREATEST(@last+1,@now)),@until=@now+2500000,@lasts=2500000"
        ),
        "UPDATE `t_lease_holders` SET `holder`='ME',`label`=x'6d65',`permits`=0,`of`=0,\
         `expires`=@until,`term`=@lasts,`token`=@token \
         WHERE `name`=x'61' AND `expires`<=@now AND @granted=1 ORDER BY `holder`='ME' DESC LIMIT 1"
            .to_owned(),
        "INSERT INTO `t_lease_holders` (`name`,`holder`,`label`,`permits`,`of`,`expires`,`term`,`token`) \
         SELECT x'61','ME',x'6d65',0,0,@until,@lasts,@token FROM DUAL WHERE @granted>0 AND ROW_COUNT()=0 \
         ON DUPLICATE KEY UPDATE `term`=GREATEST(`term`,@lasts),`expires`=GREATEST(`expires`,@until)"
            .to_owned(),
        format!(
            "UPDATE `t_leases` SET `token`=CASE @granted WHEN 1 THEN LAST_INSERT_ID(@token) \
             WHEN 2 THEN `token`+0*LAST_INSERT_ID(@token) ELSE `token`+0*LAST_INSERT_ID(9223372036854775808|\
             IF({others},@wanted-@now,IF(SHARED,@ends-@now,GREATEST(0,LEAST(@expires-@now,@term))))) END,\
             `last_token`=IF(@granted=1,@token,`last_token`),`label`=IF(@granted>0,NULL,`label`),\
             `term`=IF(@granted>0,GREATEST(@longest,@lasts),`term`),\
             `holder`=IF(@granted>0,'shared',IF(SHARED AND @holders=0,NULL,`holder`)),\
             `expires`=CASE WHEN @granted>0 THEN GREATEST(@ends,@until) WHEN NOT SHARED THEN LEAST(`expires`,@now+`term`) \
             WHEN @holders=0 THEN @now ELSE @ends END,\
             `sleeper`=`sleeper`,`waiter`=`waiter`,`wanted`=IF(@granted>0 AND @waiter<=>'shared',0,`wanted`) \
             WHERE `name`=x'61' AND @found>0"
        ),
    ];
    for (statement, expected) in shown(&statements, terms.holder).iter().zip(&expected) {
        assert_eq!(statement, expected);
    }
    assert_eq!(statements.len(), expected.len());
}

#[test]
fn permits_fit_within_the_limit_of_the_request() {
    let terms = terms();
    let shared = |sharing, mark| {
        shown(
            &LeaseStatements::new("t").share(&name(), &terms, sharing, mark),
            terms.holder,
        )
    };
    let statements = shared(permits(2, 5), None);
    assert!(
        statements[4].contains("WHEN @holder='permits' AND @taken+2<=5 THEN 1 ELSE 0 END"),
        "{statements:?}"
    );
    assert!(statements[5].contains("`permits`=2,`of`=5,"), "{statements:?}");
    assert!(
        statements[7].contains("`holder`=IF(@granted>0,'permits',"),
        "{statements:?}"
    );
    // A waiter for one permit leaves a mark for other modes only. A waiter for several leaves a mark of its own.
    let mark = Some(Mark {
        lasts: Duration::from_millis(300),
        sleeper: 7,
    });
    let marks = |statement: &str, whose, mode| {
        let marks = format!(
            "`waiter`=IF(@granted=0 AND {mode} AND NOT (@wanted>@now AND @wanted<=@now+10000000 AND NOT @waiter<=>'{whose}'),'{whose}',`waiter`)"
        );
        assert!(statement.contains(&marks), "{statement}");
    };
    marks(&shared(permits(1, 5), mark)[7], "permits", "NOT @holder<=>'permits'");
    marks(&shared(permits(2, 5), mark)[7], "ME", "1");
    marks(&shared(permits(1, 1), mark)[7], "ME", "1");
    marks(&shared(Sharing::Readers, mark)[7], "shared", "1");
}

/// As an exclusive one does: an answer that changes nothing writes nothing.
#[test]
fn a_mark_that_lasts_for_long_enough_stays_as_it_is() {
    let terms = terms();
    let mark = Mark {
        lasts: Duration::from_millis(300),
        sleeper: 7,
    };
    let statements = LeaseStatements::new("t").share(&name(), &terms, Sharing::Readers, Some(mark));
    let row = &shown(&statements, terms.holder)[7];
    let lasts = "IF(@wanted BETWEEN @now+262500 AND @now+10000000 AND @waiter<=>'shared',@wanted,@now+300000)";
    assert!(row.contains(lasts), "{row}");
}

/// One of those who left it gives up. The mark of a waiter alone is not theirs.
#[test]
fn the_common_mark_of_waiters_is_removed_by_its_word() {
    let unmark = |sharing| LeaseStatements::new("t").unmark_kind(&name(), sharing);
    let of = |word| format!("UPDATE `t_leases` SET `wanted`=0 WHERE `name`=x'61' AND `waiter`='{word}'");
    assert_eq!(
        (unmark(Sharing::Readers), unmark(permits(1, 2))),
        (of("shared"), of("permits"))
    );
    let words = [&b"shared"[..], b"permits", b"00ff00ff00ff00ff00ff00ff00ff00ff", b""];
    assert_eq!(words.map(is_kind), [true, true, false, false]);
}

#[test]
fn a_row_is_made_if_it_is_missing_and_left_alone_otherwise() {
    assert_eq!(
        LeaseStatements::new("t").make_row(&name()),
        "INSERT IGNORE INTO `t_leases` (`name`) VALUES (x'61')"
    );
}

fn renewal(is_shared: bool) -> HoldRenewal {
    HoldRenewal {
        name: name(),
        holder: terms().holder,
        ttl: Duration::from_secs(1),
        is_shared,
        is_alone: false,
    }
}

/// Each as its own statements renew it, and none that waits for a row.
#[test]
fn holds_of_one_kind_are_renewed_together_and_one_of_them_alone() {
    let statements = LeaseStatements::new("t");
    let (exclusive, reader) = (renewal(false), renewal(true));
    let of = std::slice::from_ref;
    let ttl = exclusive.ttl;
    assert_eq!(
        statements.together(ttl, of(&exclusive)),
        [statements.renew(ttl, of(&exclusive), Rows::SkipLocked)]
    );
    assert_eq!(
        statements.together(ttl, of(&reader)),
        statements.renew_shared(ttl, of(&reader), Rows::SkipLocked)
    );
    for hold in [&exclusive, &reader] {
        assert_eq!(statements.alone(hold), statements.renew_at_once(ttl, hold));
    }
}

/// A question which of them are missing would be answered by the clock of a later moment.
#[test]
fn exclusive_holds_are_renewed_if_all_of_them_are() {
    let statements = LeaseStatements::new("t");
    let renewed = |matched| {
        let result = StatementResult {
            matched,
            ..StatementResult::default()
        };
        statements.renewed(&[renewal(false), renewal(false)], &result).unwrap()
    };
    assert_eq!(
        [renewed(0), renewed(1), renewed(2)],
        [[false; 2], [false; 2], [true; 2]]
    );
    let nobody = StatementResult {
        matched: 1,
        ..StatementResult::default()
    };
    assert_eq!(
        statements.renewed(&[renewal(true)], &nobody).unwrap(),
        [false],
        "it has no row"
    );
}

#[test]
fn a_raise_locks_the_row_first_and_looks_for_its_holder() {
    let terms = terms();
    let token = FencingToken::new(70).unwrap();
    let statements = LeaseStatements::new("t").raise_shared(&name(), terms.holder, token);
    let statements = shown(&statements, terms.holder);
    assert_eq!(statements[..2], LOCK);
    assert_eq!(
        statements[2..],
        [
            "SELECT COUNT(*)+(@holder<=>'ME' AND @expires>@now) INTO @granted FROM `t_lease_holders` \
             WHERE `name`=x'61' AND `holder`='ME' AND `expires`>@now AND SHARED",
            "UPDATE `t_leases` SET `token`=`token`+0*LAST_INSERT_ID(@granted),\
             `last_token`=IF(@granted>0,GREATEST(`last_token`,70),`last_token`) WHERE `name`=x'61' AND @found>0",
        ]
    );
}

#[test]
fn an_end_locks_the_row_first_and_says_whom_to_wake() {
    let terms = terms();
    let statements = shown(&LeaseStatements::new("t").end(&name(), terms.holder), terms.holder);
    let mine = "(@holder<=>'ME' AND @expires>@now)";
    let frees = format!("({mine} OR (SHARED AND @holders=0))");
    assert_eq!(statements[..2], LOCK);
    assert_eq!(
        statements[2..],
        [
            "UPDATE `t_lease_holders` SET `expires`=0 \
             WHERE `name`=x'61' AND `holder`='ME' AND `expires`>@now AND SHARED"
                .to_owned(),
            "SELECT ROW_COUNT(),COUNT(*),COALESCE(MAX(LEAST(`expires`,@now+`term`)),0),COALESCE(MAX(`term`),0) \
             INTO @ended,@holders,@ends,@longest FROM `t_lease_holders` WHERE `name`=x'61' AND `expires`>@now"
                .to_owned(),
            format!(
                "UPDATE `t_leases` SET `token`=`token`+0*LAST_INSERT_ID(IF(@ended>0 OR {mine},9223372036854775808,0)|\
                 IF({frees} AND @wanted>@now AND NOT @waiter<=>'ME',@sleeper,0)),\
                 `label`=IF({mine},NULL,`label`),`term`=IF(SHARED AND @holders>0,@longest,`term`),\
                 `holder`=IF({frees},NULL,`holder`),\
                 `expires`=CASE WHEN {frees} THEN @now WHEN SHARED THEN @ends ELSE `expires` END,\
                 `wanted`=IF(`waiter`<=>'ME',0,`wanted`) WHERE `name`=x'61' AND @found>0"
            ),
        ]
    );
}

#[test]
fn a_downgrade_keeps_token_label_and_expiry() {
    let terms = terms();
    let token = FencingToken::new(7).unwrap();
    let ttl = Duration::from_secs(1);
    let statements = LeaseStatements::new("t").downgrade(&name(), terms.holder, token, ttl);
    let statements = shown(&statements, terms.holder);
    let mine = "(@holder<=>'ME' AND @expires>@now)";
    assert_eq!(statements[..2], LOCK);
    assert_eq!(statements[2..4], LOOK);
    assert_eq!(
        statements[4],
        format!(
            "SET @granted=CASE WHEN {mine} THEN 1 WHEN @mine IS NOT NULL THEN 2 ELSE 0 END,@token=7,\
             @until=IF({mine},GREATEST(LEAST(@expires,@now+@term),@now+1000000),@now+1000000),\
             @lasts=IF({mine},GREATEST(@term,1000000),1000000)"
        )
    );
    assert!(
        statements[5].contains("`label`=@label,`permits`=0,`of`=0,"),
        "{statements:?}"
    );
    assert_eq!(
        statements[7],
        "UPDATE `t_leases` SET `token`=`token`+0*LAST_INSERT_ID(@granted>0),`label`=IF(@granted>0,NULL,`label`),\
         `term`=IF(@granted>0,GREATEST(@longest,@lasts),`term`),`holder`=IF(@granted>0,'shared',`holder`),\
         `expires`=IF(@granted>0,GREATEST(@ends,@until),`expires`) WHERE `name`=x'61' AND @found>0"
    );
}

#[test]
fn renewals_lock_the_rows_of_the_names_before_the_holders() {
    let holder = terms().holder;
    let renewal = HoldRenewal {
        name: name(),
        holder,
        ttl: Duration::from_secs(1),
        is_shared: true,
        is_alone: false,
    };
    let renewed = |rows| LeaseStatements::new("t").renew_shared(renewal.ttl, std::slice::from_ref(&renewal), rows);
    let statements = renewed(Rows::Locked);
    let among = "ON h.`name`=l.`name` AND h.`holder` IN ('ME')";
    let names = "l.`name` IN (x'61') AND l.`holder` IN ('shared','permits') AND l.`expires`>NOW";
    let tables = format!("`t_leases` l STRAIGHT_JOIN `t_lease_holders` h {among}");
    assert_eq!(
        shown(&statements, holder),
        [
            "SET @until=NOW+1000000".to_owned(),
            format!(
                "UPDATE {tables} AND h.`expires`>NOW SET h.`term`=GREATEST(h.`term`,1000000),\
                 h.`expires`=GREATEST(LEAST(h.`expires`,CLOCK+h.`term`),@until),\
                 l.`term`=GREATEST(l.`term`,1000000),\
                 l.`expires`=GREATEST(LEAST(l.`expires`,CLOCK+l.`term`),@until) WHERE {names}"
            ),
            format!("SELECT h.`holder` FROM {tables} AND h.`expires`>=@until WHERE {names}"),
        ]
    );
    let update = &shown(&renewed(Rows::SkipLocked), holder)[1];
    let free = format!(
        "SELECT h.`name`,h.`holder` FROM {tables} AND h.`expires`>NOW WHERE {names} LIMIT 1 FOR UPDATE SKIP LOCKED"
    );
    let joined = "`t_lease_holders` h ON h.`name`=f.`name` AND h.`holder`=f.`holder` \
                  STRAIGHT_JOIN `t_leases` l ON l.`name`=f.`name` SET h.`term`=";
    assert!(
        update.starts_with(&format!("UPDATE ({free}) f STRAIGHT_JOIN {joined}")),
        "{update}"
    );
}

#[test]
fn a_renewal_at_once_locks_its_rows_in_the_same_order() {
    let statements = |is_shared| {
        let renewal = renewal(is_shared);
        let statements = LeaseStatements::new("t").renew_at_once(renewal.ttl, &renewal);
        shown(&statements, renewal.holder)
    };
    let row = "SELECT 1 FROM `t_leases` WHERE `name`=x'61' FOR UPDATE NOWAIT";
    let [lock, renew] = &statements(false)[..] else {
        panic!("two statements");
    };
    assert!(lock == row && renew.starts_with("UPDATE `t_leases` l SET"), "{renew}");
    let shared = statements(true);
    let holder = "SELECT 1 FROM `t_lease_holders` WHERE `name`=x'61' AND `holder`='ME' FOR UPDATE NOWAIT";
    assert_eq!((shared[0].as_str(), shared[1].as_str(), shared.len()), (row, holder, 5));
}

#[test]
fn answers() {
    let result = |matched, last_insert_id| StatementResult {
        matched,
        last_insert_id,
        ..StatementResult::default()
    };
    assert!(shared(&result(0, 7)).unwrap().is_none(), "there is no row");
    let token = FencingToken::new(7).unwrap();
    assert_eq!(shared(&result(1, 7)).unwrap(), Some(Acquired::Granted(token)));
    assert_eq!(shared_released(&result(1, ENDED | 9)), (true, 9));
    assert_eq!(shared_released(&result(1, 0)), (false, 0));
    assert_eq!(shared_released(&result(0, ENDED)), (false, 0));
    assert!(downgraded(&result(1, 1)) && !downgraded(&result(1, 0)) && !downgraded(&result(0, 1)));
    assert!(raised(&result(1, 1)) && !raised(&result(1, 0)));
    assert_eq!(Sharing::of(Mode::Exclusive).unwrap(), None);
    let permits = Permits::new(2, 5).unwrap();
    assert_eq!(
        Sharing::of(Mode::Permits(permits)).unwrap(),
        Some(Sharing::Permits(permits))
    );
    assert_eq!(
        Sharing::of(Mode::Upgradable).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn readers_are_renewed_if_their_rows_are_there() {
    let (one, other) = (renewal(true), renewal(true));
    let result = StatementResult {
        rows: vec![row(&[Value::Bytes(other.holder.to_string().as_bytes())])],
        ..StatementResult::default()
    };
    let renewed = LeaseStatements::new("t").renewed(&[one, other], &result);
    assert_eq!(renewed.unwrap(), [false, true]);
}
