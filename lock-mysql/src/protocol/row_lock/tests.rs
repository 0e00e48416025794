use lock_core::backend::SentAt;
use tokio::time::Instant;

use super::*;
use crate::protocol::rows::{Value, row};
use crate::protocol::{Answer, Job, StatementResult};

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

#[test]
fn a_name_is_its_bytes() {
    let statements = Statements::new("t");
    assert_eq!(
        statements.release(&name("a'\0Ö")),
        "UPDATE `t` SET `connection`=0 WHERE `name`=x'612700c396';COMMIT"
    );
    let longest = "\u{1F512}".repeat(128);
    assert!(
        statements
            .wait_for_row(&name(&longest), Mode::Exclusive, 9, None)
            .contains(&"f09f9492".repeat(128))
    );
}

#[test]
fn waiting_for_a_row_until_a_moment() {
    let statements = Statements::new("t");
    let wait = |limit| statements.wait_for_row(&name("a"), Mode::Exclusive, 9, limit);
    let tail = " FOR UPDATE;SET SESSION innodb_lock_wait_timeout=1";
    assert!(wait(None).ends_with(&format!("=9;SELECT 1 FROM `t` WHERE `name`=x'61'{tail}")));
    let limited = wait(Some(Duration::from_micros(2_019_500)));
    let begins =
        ";/*M!100100 SET STATEMENT max_statement_time=2.020 FOR */SELECT /*+ MAX_EXECUTION_TIME(2020) */ 1 FROM";
    assert!(limited.contains(begins), "{limited}");
    assert!(limited.split(';').nth(HOLDER).unwrap().contains("`label`"), "{limited}");
    assert!(
        limited.split(';').nth(LOCKED).unwrap().contains("FOR UPDATE"),
        "{limited}"
    );
}

#[test]
fn acquiring_a_row() {
    let mut terms = AcquireTerms {
        ttl: Duration::from_secs(2),
        fixed: true,
        label: Some("me"),
        floor: FencingToken::new(41),
    };
    let label = format!("6d65{}", "00".repeat(62));
    assert_eq!(
        Statements::new("t").acquire_nowait(&name("a"), &terms),
        format!(
            "SELECT 1 FROM `t` WHERE `name`=x'61' FOR UPDATE NOWAIT;\
         UPDATE `t` SET `token`=GREATEST(`token`+17,42,\
         CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED),\
         COALESCE((SELECT t.`token`+1 FROM `t_tokens` t WHERE t.`name`=x'61'),0)),\
         `connection`=CONNECTION_ID()+0*LAST_INSERT_ID(`token`|(`token`>\
         CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED))<<63),\
         `label`=x'{label}',\
         `expires`=CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)+2000000 \
         WHERE `name`=x'61'"
        )
    );
    terms.fixed = false;
    let renewed = Statements::new("t").acquire_nowait(&name("a"), &terms);
    assert!(
        renewed.ends_with(&format!("`label`=x'{label}',`expires`=0 WHERE `name`=x'61'")),
        "{renewed}"
    );
}

#[test]
fn a_reader_shares_the_row_and_has_one_of_its_own() {
    let (statements, name) = (Statements::new("t"), name("a"));
    assert_eq!(
        statements.share_nowait(&name),
        "SELECT `token` FROM `t` WHERE `name`=x'61' \
         /*!80001 FOR SHARE NOWAIT*/ /*M! LOCK IN SHARE MODE NOWAIT*/;\
         SELECT 1 FROM `t_tokens` WHERE `name`=x'' FOR UPDATE NOWAIT"
    );
    let waiting = statements.wait_for_row(&name, Mode::Shared, 9, None);
    assert!(
        waiting.contains("x'61' /*!80001 FOR SHARE*/ /*M! LOCK IN SHARE MODE*/;SET"),
        "{waiting}"
    );
    let holder = HolderId::random();
    let token = FencingToken::new(5).unwrap();
    assert_eq!(
        statements.enter_reader(&name, holder, token, Some("me")),
        format!(
            "INSERT INTO `t` (`name`,`token`,`connection`,`label`) VALUES \
             (CONCAT(CONCAT(x'ff',UNHEX(SHA2(x'61',256))),x'{holder}'),5,CONNECTION_ID(),x'6d65')"
        )
    );
    let floor = FencingToken::new(41);
    let least = |row| statements.reader_token(&name, row, floor);
    assert!(least(7).contains("GREATEST(42,") && least(40).contains("GREATEST(57,"));
    assert_eq!(statements.release_in(&name, Mode::Shared), "ROLLBACK");
}

#[test]
fn a_clean_up_judges_the_last_token_of_a_grant_and_skips_readers() {
    let statements = Statements::new("t");
    let [locks, tokens] = statements.dead_rows(Duration::from_micros(100));
    let dead = format!("(`token`+116<{SERVER_MICROS})");
    let sql = |job| match job {
        Job::Transaction(statements) => statements.join(";"),
        other => panic!("{other:?}"),
    };
    let key = vec![b"a".to_vec()];
    assert_eq!(
        sql(locks.after(&key, 9)),
        format!(
            "SELECT `name`,CAST({dead} AS SIGNED) FROM `t` WHERE `name`>x'61' AND `name`<x'ff' ORDER BY `name` LIMIT 9"
        )
    );
    assert_eq!(
        sql(tokens.delete(&key)),
        format!(
            "SELECT 1 FROM `t_tokens` WHERE `name`=x'61' FOR UPDATE NOWAIT;\
             DELETE FROM `t_tokens` WHERE `name`=x'61' AND {dead}"
        )
    );
}

/// No lock has an empty name.
#[test]
fn a_check_of_permissions_changes_no_row_and_leaves_none_out() {
    let check = Statements::new("t").check_permissions();
    let (of_rows, last) = check.rsplit_once(';').expect("several statements");
    assert_eq!(last, "ROLLBACK");
    for statement in of_rows.split(';') {
        assert!(statement.contains(" WHERE `name`=x''"), "{statement}");
    }
    for table in ["t", "t_tokens"] {
        for verb in ["SELECT `token` FROM", "UPDATE", "INSERT IGNORE INTO"] {
            assert!(check.contains(&format!("{verb} `{table}` ")), "{verb} {table}: {check}");
        }
    }
}

/// An insert would wait for a holder that has made and locked the row meanwhile.
#[test]
fn a_row_is_made_for_all_after_a_look_for_it() {
    assert_eq!(
        Statements::new("t").create_row(&name("a")),
        "ROLLBACK;SET SESSION innodb_lock_wait_timeout=1;INSERT IGNORE INTO `t` (`name`) SELECT x'61' FROM DUAL \
         WHERE NOT EXISTS (SELECT 1 FROM `t` WHERE `name`=x'61');COMMIT"
    );
}

/// The next wait has a time of its own.
#[test]
fn a_wait_in_vain_leaves_no_transaction_and_no_setting() {
    assert_eq!(
        Statements::clean_up_wait(),
        "ROLLBACK;SET SESSION innodb_lock_wait_timeout=1"
    );
}

const READERS: &str = "CONCAT(x'ff',UNHEX(SHA2(x'61',256)))";

/// The keys of a name's readers begin alike, and end with a holder id of 16 bytes.
#[test]
fn the_holders_are_the_one_in_the_row_and_its_readers() {
    let holders = Statements::new("t").holders(&name("a"));
    let rows = format!(
        ",`name`=x'61' FROM `t` WHERE `name`=x'61' AND `connection`<>0 \
         OR `name`>{READERS} AND `name`<CONCAT({READERS},REPEAT(x'ff',17))"
    );
    assert!(holders.ends_with(&rows), "{holders}");
    let after_busy = Statements::new("t").holder_after_busy(&name("a"));
    let answers: Vec<_> = after_busy.split(';').collect();
    assert_eq!((answers[3], answers[0], answers[4]), (&*holders, "ROLLBACK", "COMMIT"));
    // Fails if somebody has locked the table, and then the row says nothing.
    assert_eq!(answers[2], "SELECT 1 FROM `t` WHERE `name`=x'' FOR UPDATE NOWAIT");
}

#[test]
fn a_hold_is_found_by_the_key_of_its_mode() {
    let holder = HolderId::random();
    let of = |mode| Statements::new("t").held_token(&name("a"), mode, holder);
    let found = |key: &str| format!("SELECT `token` FROM `t` WHERE `name`={key} AND `connection`<>0");
    assert_eq!(of(Mode::Exclusive), found("x'61'"));
    assert_eq!(of(Mode::Shared), found(&format!("CONCAT({READERS},x'{holder}')")));
}

/// Versions that know of no passes step by 1 from the last of them.
#[test]
fn a_token_ahead_of_the_clock_is_committed_with_those_of_its_passes() {
    let commit = |token| Statements::new("t").commit_token(&name("a"), FencingToken::new(token).unwrap());
    assert_eq!(
        commit(9),
        "INSERT INTO `t_tokens` (`name`,`token`) VALUES (x'61',25) ON DUPLICATE KEY UPDATE `token`=GREATEST(`token`,25)"
    );
}

/// A holder writes its token, and has not committed it.
#[test]
fn the_token_of_the_last_release_is_read_from_what_is_committed() {
    assert_eq!(
        Statements::new("t").committed_token(&name("a")),
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SELECT `token` FROM `t` WHERE `name`=x'61'"
    );
}

#[test]
fn a_name_is_listed_as_used_if_a_writer_or_a_reader_has_it() {
    let list = Statements::new("t").list(&ListFrom::all(), 7);
    let readers = "CONCAT(x'ff',UNHEX(SHA2(l.`name`,256)))";
    let used = format!(
        "CAST(l.`connection`<>0 OR EXISTS(SELECT 1 FROM `t` r WHERE r.`name`>{readers} \
         AND r.`name`<CONCAT({readers},REPEAT(x'ff',17))) AS SIGNED) FROM `t` l"
    );
    assert!(list.contains(&used), "{list}");
}

#[test]
fn an_exclusive_hold_ends_with_a_commit_that_keeps_its_token() {
    let statements = Statements::new("t");
    assert_eq!(
        statements.release_in(&name("a"), Mode::Exclusive),
        "UPDATE `t` SET `connection`=0 WHERE `name`=x'61';COMMIT"
    );
}

#[test]
fn a_row_that_was_taken_says_its_token_and_whether_the_clock_is_behind() {
    let answer = |matched, last_insert_id| Answer {
        sent: SentAt::now(),
        sent_instant: Instant::now(),
        results: vec![StatementResult {
            matched,
            last_insert_id,
            ..StatementResult::default()
        }],
    };
    let taken = |ahead| Acquired {
        token: FencingToken::new(7).unwrap(),
        ahead,
    };
    assert_eq!(acquired(&answer(1, 7), 0).unwrap(), Some(taken(false)));
    assert_eq!(acquired(&answer(1, 7 | 1 << 63), 0).unwrap(), Some(taken(true)));
    assert_eq!(acquired(&answer(0, 7), 0).unwrap(), None, "there is no such row yet");
    assert_eq!(acquired(&answer(1, 7), 1).unwrap(), None);
    assert!(acquired(&answer(1, 1 << 63), 0).is_err(), "no token is 0");
    assert_eq!(reader_token(&answer(1, 7)).unwrap(), taken(false).token);
    assert!(reader_token(&answer(1, 0)).is_err());
}

/// The label that the row shows is that of a holder or a waiter behind it.
#[test]
fn a_row_that_nobody_has_makes_nobody_busy() {
    assert_eq!(busy(None).unwrap().holder, None);
}

#[test]
fn a_row_of_holders_says_who_it_is_and_until_when() {
    let read = |label: Value<'_>, rest, is_exclusive| {
        let row = row(&[Value::Unsigned(7), label, rest, Value::Signed(is_exclusive)]);
        (holder(&row).unwrap(), busy(Some(&row)).unwrap().holder)
    };
    let (writer, busy) = read(Value::Bytes(b"me\0\0"), Value::Signed(1_500_000), 1);
    assert_eq!((writer.label.as_deref(), busy.as_deref()), (Some("me"), Some("me")));
    assert_eq!(
        (writer.token, writer.mode),
        (FencingToken::new(7), Some(Mode::Exclusive))
    );
    assert_eq!(writer.expires_in, Some(Duration::from_millis(1500)));
    // The end of a hold that can be renewed is not written down.
    let (reader, busy) = read(Value::Null, Value::Null, 0);
    assert_eq!((reader.label, busy, reader.expires_in), (None, None, None));
    assert_eq!(reader.mode, Some(Mode::Shared));
    let (late, _) = read(Value::Bytes(b""), Value::Signed(-1), 1);
    assert_eq!((late.label, late.expires_in), (None, Some(Duration::ZERO)));
    let no_token = row(&[Value::Unsigned(0), Value::Null, Value::Null, Value::Signed(1)]);
    assert!(holder(&no_token).is_err());
}
