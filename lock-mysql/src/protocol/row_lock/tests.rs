use super::*;
use crate::protocol::Job;

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
         /*!80001 FOR SHARE NOWAIT*/ /*M! LOCK IN SHARE MODE NOWAIT*/"
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
