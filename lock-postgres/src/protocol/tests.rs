//! The statements as they are sent: other versions of this crate send the same to the same tables.

use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{HolderId, Mode, Permits, Revoke};
use lock_core::{FencingToken, LockName};

use super::lease::LeaseStatements;
use super::sharing::End;
use super::terms::LeaseTerms;

fn statements() -> LeaseStatements {
    LeaseStatements::new(None, "t")
}

const NEXT: &str = "GREATEST(last_token+1,COALESCE($6,(extract(epoch from statement_timestamp())*1000000)::bigint),$5)";
const WANTED: &str = "(CASE WHEN wanted<=statement_timestamp()+interval '10 s' THEN wanted ELSE '-infinity' END)";

#[test]
fn a_free_name_is_taken_by_one_row() {
    assert_eq!(
        statements().take.sql,
        format!(
            "UPDATE \"t_leases\" SET holder=$2,kind=0,label=$3,term=($4*interval '1 microsecond'),\
             expires=statement_timestamp()+($4*interval '1 microsecond'),token={NEXT},\
             last_token={NEXT}+LEAST($7,9223372036854775807-{NEXT}) \
             WHERE name=$1 AND GREATEST(expires,{WANTED})<=LEAST(statement_timestamp(),clock_timestamp()) \
             AND NOT $2=ANY(dead) RETURNING token"
        )
    );
}

#[test]
fn a_release_touches_its_own_hold_and_says_whether_somebody_waits() {
    assert_eq!(
        statements().release.sql,
        format!(
            "UPDATE \"t_leases\" SET holder=CASE WHEN $3>0 THEN '00000000-0000-0000-0000-000000000000'::uuid END,\
             label=CASE WHEN $3>0 THEN label END,term=CASE WHEN $3>0 THEN ($3*interval '1 microsecond') ELSE term END,\
             expires=CASE WHEN $3>0 THEN statement_timestamp()+($3*interval '1 microsecond') ELSE '-infinity'::timestamptz END \
             WHERE name=$1 AND holder=$2 AND kind=0 AND expires>statement_timestamp() RETURNING {WANTED}>statement_timestamp()"
        )
    );
}

#[test]
fn a_renewal_moves_the_end_only_forward() {
    let renew = statements().renew.waiting.sql;
    let end = "expires=GREATEST(LEAST(l.expires,clock_timestamp()+l.term),statement_timestamp()+(r.ttl*interval '1 microsecond'))";
    assert!(renew.contains(end), "{renew}");
    let mine = "WHERE l.name=r.name AND l.holder=r.holder AND l.kind=0 AND l.expires>statement_timestamp()";
    assert!(renew.contains(mine) && !renew.contains("SKIP LOCKED"), "{renew}");
    let unlocked = statements().renew.unlocked.sql;
    assert!(
        unlocked.contains(mine) && unlocked.contains("FOR NO KEY UPDATE OF l SKIP LOCKED"),
        "{unlocked}"
    );
}

#[test]
fn a_renewal_of_sharers_locks_names_in_order_and_before_those_who_share_them() {
    let renew = statements().renew_shared;
    let rows = "f AS MATERIALIZED (SELECT l.name FROM \"t_leases\" l WHERE l.name IN (SELECT name FROM r) \
                AND l.kind<>0 AND l.expires>statement_timestamp() ORDER BY l.name FOR NO KEY UPDATE OF l)";
    assert!(renew.waiting.sql.contains(rows), "{}", renew.waiting.sql);
    assert!(
        renew.unlocked.sql.contains("FOR NO KEY UPDATE OF l,h SKIP LOCKED)"),
        "{}",
        renew.unlocked.sql
    );
    for statement in [&renew.waiting, &renew.unlocked] {
        let moves = "expires=GREATEST(LEAST(l.expires,clock_timestamp()+l.term),n.ends)";
        assert!(statement.sql.contains(moves), "{}", statement.sql);
    }
}

#[test]
fn every_grant_refuses_the_dead() {
    let statements = statements();
    for granting in [&statements.take, &statements.ask, &statements.queue, &statements.turn] {
        assert!(granting.sql.contains("AND NOT $2=ANY(dead)"), "{}", granting.sql);
    }
}

#[test]
fn a_turn_is_taken_by_the_first_who_waits() {
    let turn = statements().turn.sql;
    let first = "AND NOT EXISTS (SELECT FROM \"t_waiters\" w WHERE w.name=$1 AND w.place<$8 AND w.holder<>$2 \
                 AND w.expires BETWEEN statement_timestamp() AND statement_timestamp()+interval '10 s')";
    assert!(turn.contains(first), "{turn}");
}

#[test]
fn a_call_names_whom_it_calls() {
    assert_eq!(
        statements().call("decode('61','hex')"),
        "SELECT pg_notify(channel,translate(holder::text,'-','')||':'||n) FROM (SELECT channel,holder,\
         row_number() OVER (ORDER BY place) AS n FROM \"t_waiters\" w WHERE name=decode('61','hex') \
         AND w.expires BETWEEN statement_timestamp() AND statement_timestamp()+interval '10 s' ORDER BY place LIMIT 2) c \
         WHERE channel<>''"
    );
}

#[test]
fn a_clean_up_leaves_rows_that_were_used_since() {
    let [waiters, holders, leases] = statements().dead_rows(7).map(|dead| dead.delete(None, 500));
    let old = "expires<statement_timestamp()-interval '1 microsecond'*7";
    for (delete, table, dead) in [
        (waiters, "waiters", "expires NOT BETWEEN "),
        (holders, "holders", old),
        (leases, "leases", old),
    ] {
        let delete_dead = format!("DELETE FROM \"t_{table}\" t WHERE ");
        assert!(delete.contains(&delete_dead) && delete.contains(dead), "{delete}");
    }
}

const MINE: &str = "(holder=$2 AND kind=0 AND expires>statement_timestamp())";

/// The answer to an earlier try may have been lost.
#[test]
fn a_grant_that_is_asked_for_again_keeps_its_token_and_loses_no_time() {
    for sql in [&statements().ask.sql, &statements().turn.sql] {
        for kept in ["token", "last_token"] {
            let keeps = format!(",{kept}=CASE WHEN {MINE} THEN {kept} ELSE ");
            assert!(sql.contains(&keeps), "{keeps}: {sql}");
        }
        let end = format!("expires=CASE WHEN {MINE} THEN GREATEST(LEAST(expires,clock_timestamp()+term),");
        assert!(sql.contains(&end), "{sql}");
    }
}

/// As the reader of the answers expects them: a token, or `NULL` and what the one that is refused learns.
#[test]
fn a_refusal_has_a_column_for_each_that_a_grant_has() {
    let ask = statements().ask.sql;
    let refusal = ask.split("UNION ALL ").last().expect("the last one");
    assert_eq!(
        columns(refusal),
        columns("SELECT token,NULL,NULL,NULL,NULL,NULL FROM n")
    );
    // Behind these, whether it is queued, and a column that nobody reads.
    let turn = statements().turn.sql;
    let answer = turn.rfind("SELECT (SELECT token FROM g)").expect("the answer");
    assert_eq!(columns(&turn[answer..]), 8, "{turn}");
}

/// The number of columns of a `SELECT`.
fn columns(select: &str) -> usize {
    let mut depth = 0;
    let mut commas = 0;
    let listed = select.split(" FROM \"t_leases\"").next().expect("the first part");
    for c in listed.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    commas + 1
}

#[test]
fn a_row_that_somebody_keeps_locked_is_not_waited_for_long() {
    assert_eq!(
        statements().lock_soon("decode('61','hex')"),
        "SET LOCAL lock_timeout=50;SELECT FROM \"t_leases\" WHERE name=decode('61','hex') FOR NO KEY UPDATE"
    );
}

/// No lock has an empty name.
#[test]
fn a_check_of_permissions_changes_no_row_and_leaves_none_out() {
    let check = statements().check_permissions();
    for statement in check.split(';') {
        assert!(statement.ends_with("WHERE name=''"), "{statement}");
    }
    for table in ["holders", "waiters", "leases"] {
        for verb in ["UPDATE", "INSERT INTO"] {
            assert!(
                check.contains(&format!("{verb} \"t_{table}\"")),
                "{verb} {table}: {check}"
            );
        }
    }
    for table in ["holders", "waiters"] {
        assert!(
            check.contains(&format!("DELETE FROM \"t_{table}\"")),
            "{table}: {check}"
        );
    }
}

/// The number of parameters and their order are those of the text.
#[test]
fn a_statement_says_the_type_of_each_parameter() {
    let statements = statements();
    for statement in [
        &statements.take,
        &statements.ask,
        &statements.queue,
        &statements.turn,
        &statements.renew.waiting,
        &statements.renew.unlocked,
        &statements.renew_shared.waiting,
        &statements.renew_shared.unlocked,
        &statements.release,
        &statements.end,
        &statements.raise,
        &statements.revoke,
        &statements.status,
        &statements.list,
        &statements.cut,
    ] {
        let has = |number: usize| statement.sql.contains(&format!("${number}"));
        let count = statement.types.len();
        assert!((1..=count).all(has) && !has(count + 1), "{count}: {}", statement.sql);
    }
}

/// The text by which a new request of this mode asks.
fn share(mode: Mode) -> String {
    let terms = Terms::new(Duration::from_secs(10));
    let (request, _control) = RequestOptions::new(name(), terms).mode(mode).start();
    statements().share(&LeaseTerms::new(&request).unwrap(), None, None)
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

#[test]
fn readers_share_among_themselves_and_permits_up_to_their_limit() {
    let read = share(Mode::Shared);
    assert!(
        read.contains("OR (l.kind=1)) AND NOT EXISTS (SELECT FROM a WHERE a.kind<>1)"),
        "{read}"
    );
    let permits = share(Mode::Permits(Permits::new(3, 7).unwrap()));
    let fits = "OR (l.kind=2 AND h.taken+3<=7)) \
                AND NOT EXISTS (SELECT FROM a WHERE a.kind<>2 OR h.taken+a.taken+3>LEAST(a.\"of\",7))";
    assert!(permits.contains(fits), "{permits}");
    // One who waits for permits may have some when the first of them ends, and a writer when the last reader has left.
    assert!(
        permits.contains("min(expires)") && !permits.contains("SELECT max(expires) FROM"),
        "{permits}"
    );
    assert!(
        read.contains("SELECT max(expires) FROM") && !read.contains("min(expires)"),
        "{read}"
    );
}

/// The texts of all requests about holds that share a name.
fn of_sharers() -> [String; 6] {
    let (statements, name, holder) = (statements(), name(), HolderId::random());
    let token = FencingToken::new(9).unwrap();
    let buries = End {
        buries: true,
        keep_for: None,
    };
    [
        share(Mode::Shared),
        statements.end_any(&name, holder, End::default()),
        statements.end_any(&name, holder, buries),
        statements.downgrade(&name, holder, token, Duration::from_secs(1)),
        statements.raise_shared(&name, holder, token),
        statements.revoke_shared(&name, token, Revoke::Now),
    ]
}

/// A statement that waits for a row reads other tables as they were before.
#[test]
fn all_that_reads_who_shares_a_name_locks_its_row_first() {
    let lock = "INSERT INTO \"t_leases\" (name) VALUES (decode('61','hex')) ON CONFLICT DO NOTHING;\
                SELECT FROM \"t_leases\" WHERE name=decode('61','hex') FOR UPDATE;";
    for text in of_sharers() {
        assert!(text.starts_with(lock), "{text}");
        assert!(
            text.contains(";SELECT 'polylock',") || text.contains(" SELECT 'polylock',"),
            "{text}"
        );
    }
}

/// Those who end leave the name to the others, or free.
#[test]
fn a_name_that_somebody_leaves_lasts_as_long_as_those_who_stay() {
    let settle = "UPDATE \"t_leases\" l SET expires=COALESCE(h.ends,'-infinity'::timestamptz),term=COALESCE(h.longest,l.term) \
                  FROM (SELECT max(expires) AS ends,max(term) AS longest FROM \"t_holders\" WHERE name=decode('61','hex')) h \
                  WHERE l.name=decode('61','hex') AND l.kind<>0";
    let [_, end, bury, downgrade, _, revoke] = of_sharers();
    for text in [end, bury, downgrade, revoke] {
        assert!(text.contains(settle), "{text}");
    }
}

#[test]
fn only_an_end_that_buries_leaves_a_tombstone() {
    let [_, end, bury, ..] = of_sharers();
    let dead = "UPDATE \"t_leases\" SET dead=(";
    assert!(bury.contains(dead) && !end.contains(dead), "{bury}");
}

/// Its own token: a reader has the token of the grant that it goes back to.
#[test]
fn a_downgrade_keeps_the_token_of_its_grant() {
    let [.., downgrade, raise, _] = of_sharers();
    assert!(downgrade.contains("label,1,1,term,expires,9 FROM x"), "{downgrade}");
    assert!(raise.contains("SET last_token=GREATEST(last_token,9)"), "{raise}");
}

#[test]
fn a_name_is_kept_for_a_minimum_alone() {
    let end = |keep_for| {
        let how = End {
            buries: false,
            keep_for,
        };
        statements().end_any(&name(), HolderId::random(), how)
    };
    let kept = end(Some(Duration::from_secs(1)));
    assert!(
        kept.contains("expires=statement_timestamp()+(1000000*interval"),
        "{kept}"
    );
    for free in [end(None), end(Some(Duration::ZERO))] {
        assert!(
            free.contains("SET holder=NULL,label=NULL,expires='-infinity'"),
            "{free}"
        );
    }
}

/// Then nobody renews it, and nobody overlaps it.
#[test]
fn a_sharer_that_is_revoked_at_the_end_of_its_lease_stays_until_then() {
    let token = FencingToken::new(9).unwrap();
    let at_end = statements().revoke_shared(&name(), token, Revoke::AtLeaseEnd);
    assert!(at_end.contains("UPDATE \"t_holders\" SET holder='"), "{at_end}");
    let now = statements().revoke_shared(&name(), token, Revoke::Now);
    let deletes = "DELETE FROM \"t_holders\" WHERE name=decode('61','hex') AND token=9";
    assert!(now.contains(deletes) && !at_end.contains(deletes), "{now}");
}
