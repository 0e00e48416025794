use super::*;

/// Other versions of this crate lock by the same keys.
#[test]
fn the_key_of_a_name_stays_as_it_is() {
    assert_eq!(
        key_of("s", "t", "$2"),
        "('x'||substr(encode(sha256(decode('706f6c796c6f636b0073657373696f6e0073007400','hex')||$2),'hex'),1,16))::bit(64)::bigint"
    );
    let statements = SessionStatements::new("s", "t");
    let key = key_of("s", "t", "$2");
    for statement in [
        &statements.exclusive.take,
        &statements.exclusive.wait,
        &statements.shared.take,
        &statements.shared.unlock,
        &statements.downgrade,
    ] {
        assert!(
            statement.sql.contains(&key) && statement.sql.contains(IS_MINE),
            "{}",
            statement.sql
        );
    }
}

#[test]
fn a_grant_writes_who_reads() {
    let statements = SessionStatements::new("s", "t");
    let reads = "INSERT INTO \"s\".\"t_readers\"";
    for grant in [&statements.shared.take, &statements.shared.confirm] {
        assert!(grant.sql.contains(reads), "{}", grant.sql);
    }
    for grant in [&statements.exclusive.take, &statements.exclusive.confirm] {
        assert!(!grant.sql.contains(reads), "{}", grant.sql);
    }
}

/// The number of parameters and their order are those of the text.
#[test]
fn a_statement_says_the_type_of_each_parameter() {
    let statements = SessionStatements::new("s", "t");
    let SessionStatements { exclusive, shared, .. } = &statements;
    let of_modes = [exclusive, shared].into_iter().flat_map(|mode| {
        let OfMode {
            take,
            wait,
            confirm,
            unlock,
        } = mode;
        [take, wait, confirm, unlock]
    });
    let others = [
        &statements.enter_reader,
        &statements.downgrade,
        &statements.unlock_any,
        &statements.age,
        &statements.age_of_process,
        &statements.status,
        &statements.list,
    ];
    for statement in of_modes.chain(others) {
        let has = |number: usize| statement.sql.contains(&format!("${number}"));
        let count = statement.types.len();
        assert!((1..=count).all(has) && !has(count + 1), "{count}: {}", statement.sql);
    }
}

/// A pooler may have given the connection somebody else's session.
#[test]
fn nothing_changes_a_lock_in_the_session_of_somebody_else() {
    let statements = SessionStatements::new("s", "t");
    for statement in [&statements.enter_reader, &statements.unlock_any] {
        assert!(statement.sql.contains(IS_MINE), "{}", statement.sql);
    }
    let raise = statements.raise("m", "n", 9);
    assert!(
        raise.contains("current_setting('polylock.session',true)='m'"),
        "{raise}"
    );
    assert!(raise.starts_with(
        "UPDATE \"s\".\"t_tokens\" SET token=GREATEST(token,9),last_token=GREATEST(last_token,9) WHERE name=n"
    ));
    assert_eq!(
        statements.forget_reader("n"),
        "DELETE FROM \"s\".\"t_readers\" WHERE name=n AND pid=pg_backend_pid()"
    );
}

/// A standby that is promoted keeps its process, so the first who sees its new timeline writes down when.
#[test]
fn the_age_counts_from_the_start_or_from_the_first_sight_of_a_timeline() {
    let age = SessionStatements::new("s", "t").age.sql;
    let counts = "SELECT now-GREATEST((extract(epoch from pg_postmaster_start_time())*1000000)::bigint,COALESCE((SELECT last_token FROM s),";
    let seen = "CASE WHEN t.token<>excluded.token THEN (SELECT now FROM n) ELSE t.last_token END RETURNING last_token)";
    assert!(age.contains(counts) && age.contains(seen), "{age}");
}

/// What the server's age is read from, and what a lock still needs.
#[test]
fn a_clean_up_leaves_the_timeline_and_names_that_are_locked() {
    let dead = SessionStatements::new("s", "t").dead_rows(7);
    let [readers, names] = dead.map(|dead| dead.delete(None, 500));
    let held = "AND NOT EXISTS (SELECT FROM pg_locks WHERE";
    assert!(
        names.contains("t.name<>''::bytea AND t.last_token<") && names.contains("-7 AND NOT EXISTS"),
        "{names}"
    );
    for (delete, table) in [(&readers, "readers"), (&names, "tokens")] {
        assert!(
            delete.contains(&format!("DELETE FROM \"s\".\"t_{table}\" t ")),
            "{delete}"
        );
        assert!(delete.contains(held) && delete.contains(" LIMIT 500)"), "{delete}");
    }
}

#[test]
fn a_check_of_permissions_changes_no_row_and_leaves_none_out() {
    let check = SessionStatements::new("s", "t").check_permissions();
    for statement in check.split(';') {
        let is_of_nothing = statement.ends_with(" WHERE name=''") || statement.ends_with(" WHERE name='' AND kind=2");
        assert!(is_of_nothing, "{statement}");
    }
    for verb in [
        "UPDATE \"s\".\"t_tokens\"",
        "INSERT INTO \"s\".\"t_tokens\"",
        "UPDATE \"s\".\"t_readers\"",
        "DELETE FROM \"s\".\"t_readers\"",
        "INSERT INTO \"s\".\"t_readers\"",
    ] {
        assert!(check.contains(verb), "{verb}: {check}");
    }
}

#[test]
fn tables_are_named_with_the_schema_that_they_are_in() {
    let statements = SessionStatements::new("a\"b", "t");
    assert!(
        statements
            .make_durable("n")
            .starts_with("UPDATE \"a\"\"b\".\"t_tokens\" ")
    );
}
