//! The tables: made together, cleaned up, and read by people.

use futures_util::future::join_all;
use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, Mode, ReleaseOutcome};
use lock_postgres::{Pooler, PostgresConfig};
use testbed::assert_safe;
use tokio::time;

use super::support::*;

#[testbed::test]
async fn many_clients_make_the_tables_at_the_same_time() {
    let fixture = Fixture::shared().await;
    let table = format!("{}_new", fixture.table);
    let clients: Vec<_> = (0..8)
        .map(|_| lock_postgres::LeaseTableBackend::new(fixture.config().with_table(&table)).unwrap())
        .collect();
    for connected in join_all(clients.iter().map(|client| client.connect())).await {
        connected.unwrap();
    }
    // And those that go missing later are made again.
    let drop_all = format!("DROP TABLE {table}_leases,{table}_holders,{table}_waiters");
    fixture.observer().await.batch_execute(&drop_all).await.unwrap();
    grant(&clients[0], "a", secs(60)).await.release().await;
}

#[testbed::test]
async fn tables_are_made_after_others_have_made_theirs() {
    let fixture = Fixture::shared().await;
    let others = fixture.observer().await;
    others
        .batch_execute("SELECT pg_advisory_lock(7308332240012276590)")
        .await
        .unwrap();
    let config = fixture
        .config()
        .with_table(format!("{}_late", fixture.table))
        .with_response_timeout(secs(60));
    let making = tokio::spawn(async move { lock_postgres::schema::migrate(&config).await });
    // Longer than a request of the backend waits for a lock, and than a statement may take by default.
    let waiting = "SELECT 'yes' FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype='advisory' AND NOT l.granted \
                   AND l.objid::bigint=7308332240012276590&4294967295 AND clock_timestamp()-a.query_start>'6s'";
    eventually("it to wait for six seconds", async || fixture.value(waiting).await).await;
    others
        .batch_execute("SELECT pg_advisory_unlock(7308332240012276590)")
        .await
        .unwrap();
    happens("the tables to be made", making).await.unwrap().unwrap();
}

/// The server ends one that takes longer than the response timeout, whose default is five seconds.
#[testbed::test]
async fn a_statement_may_take_as_long_as_its_answer_is_waited_for() {
    let fixture = Fixture::shared().await;
    let slow = "CREATE FUNCTION {}_slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(6); RETURN NEW; END$$;\
                CREATE TRIGGER slow BEFORE INSERT ON {}_leases FOR EACH ROW EXECUTE FUNCTION {}_slow()";
    let slow = slow.replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&slow).await.unwrap();
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_row_is_deleted_when_nobody_has_used_it_for_long() {
    let fixture = Fixture::shared().await;
    let backend = lock_postgres::LeaseTableBackend::new(fixture.config().with_retention(secs(60))).unwrap();
    for name in ["old", "new", "ahead", "held"] {
        let held = grant(&backend, name, secs(60)).await;
        if name != "held" {
            held.release().await;
        }
    }
    let age = "UPDATE {}_leases SET last_token=(extract(epoch from now())*1000000)::bigint-120000000 \
               WHERE name IN ('old','ahead');\
               UPDATE {}_leases SET last_token=(extract(epoch from now())*1000000)::bigint+999000000 WHERE name='ahead'";
    fixture
        .observer()
        .await
        .batch_execute(&age.replace("{}", &fixture.table))
        .await
        .unwrap();
    assert_eq!(backend.clean_up().await.unwrap(), 1);
    let left = fixture
        .value("SELECT string_agg(encode(name,'escape'),' ' ORDER BY name) FROM {}_leases")
        .await;
    assert_eq!(left.as_deref(), Some("ahead held new"));
}

/// More of them than one statement looks at, in each table, and rows between them that stay.
#[testbed::test]
async fn a_clean_up_goes_through_large_tables_to_their_end() {
    let fixture = Fixture::shared().await;
    let fill = "INSERT INTO {}_leases (name,last_token) SELECT decode(lpad(to_hex(i),8,'0'),'hex'),\
                CASE WHEN i%3=0 THEN (extract(epoch from now())*1000000)::bigint ELSE 1 END FROM generate_series(1,1500) i;\
                INSERT INTO {}_holders (name,holder,kind,permits,\"of\",term,expires,token) SELECT 'a',gen_random_uuid(),1,1,1,'1 s',\
                CASE WHEN i%3=0 THEN now() ELSE '-infinity' END,1 FROM generate_series(1,1500) i;\
                INSERT INTO {}_waiters (name,place,holder,channel,kind,permits,\"of\",since,expires) SELECT 'a',i-750,\
                gen_random_uuid(),'',0,1,1,now(),CASE WHEN i%3=0 THEN now() ELSE '-infinity' END FROM generate_series(1,1500) i";
    let observer = fixture.observer().await;
    observer
        .batch_execute(&fill.replace("{}", &fixture.table))
        .await
        .unwrap();
    assert_eq!(fixture.backend().clean_up().await.unwrap(), 3000);
    for table in ["leases", "holders", "waiters"] {
        assert_eq!(
            fixture.number(&format!("SELECT count(*) FROM {{}}_{table}")).await,
            500,
            "{table}"
        );
    }
}

/// Behind a pooler of transactions, where no connection sets its own `lock_timeout`.
#[testbed::test]
async fn no_request_waits_behind_a_clean_up() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_pooler(Pooler::Transaction);
    let backend = lock_postgres::LeaseTableBackend::new(config).unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
    let locking = fixture.observer().await;
    let lock = format!("BEGIN;LOCK TABLE {}_holders", fixture.table);
    locking.batch_execute(&lock).await.unwrap();
    let of_cleaning = backend.clone();
    let cleaning = tokio::spawn(async move { of_cleaning.clean_up().await });
    eventually("waiting for the table", async || fixture.waiting_for_rows().await == 1).await;
    grant(&backend, "a", secs(60)).await.release().await;
    assert!(!cleaning.is_finished());
    locking.batch_execute("COMMIT").await.unwrap();
    happens("the end of the clean-up", cleaning).await.unwrap().unwrap();
}

#[testbed::test]
async fn a_label_and_a_mode_are_there_for_people() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let _reader = try_in(&backend, "a\\b'\u{0}", Mode::Shared).await.unwrap();
    let status = backend.status(&name("a\\b'\u{0}")).await.unwrap();
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].mode, Some(Mode::Shared));
    assert!(status.holders[0].since.is_some() && status.holders[0].id.is_some());
}

/// Makes a role and its own schema, which comes before `public` in its `search_path`. Returns what it connects with.
async fn with_schema_of_its_own(fixture: &Fixture) -> (String, PostgresConfig) {
    let role = format!("{}_r", fixture.table);
    // One at a time: two that change the permissions of `public` together fail.
    let sql = format!(
        "SELECT pg_advisory_xact_lock(1);CREATE ROLE \"{role}\" LOGIN PASSWORD 'app';CREATE SCHEMA AUTHORIZATION \"{role}\";\
         GRANT CREATE ON SCHEMA public TO \"{role}\";GRANT ALL ON {{}}_leases,{{}}_holders,{{}}_waiters TO \"{role}\""
    );
    let sql = sql.replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&sql).await.unwrap();
    let config = fixture.config().with_user(&role).with_password("app");
    (role, config)
}

/// How many tables of the fixture are in `public`, and how many in another schema.
async fn tables_in(fixture: &Fixture, other: &str) -> [i64; 2] {
    let count =
        |schema| format!("SELECT count(*) FROM pg_tables WHERE schemaname='{schema}' AND tablename LIKE '{{}}%'");
    [
        fixture.number(&count("public")).await,
        fixture.number(&count(other)).await,
    ]
}

#[testbed::test]
async fn a_migration_hides_no_table_that_is_in_use() {
    let fixture = Fixture::shared().await;
    let (role, config) = with_schema_of_its_own(&fixture).await;
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    lock_postgres::schema::migrate(&config).await.unwrap();
    let other = lock_postgres::LeaseTableBackend::new(config).unwrap();
    let taken = acquire(&other, options("a", secs(60)).waits(false)).await;
    assert_safe!(taken.is_none(), "granted to two");
    assert_eq!(tables_in(&fixture, &role).await, [6, 0]);
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_connect_hides_no_table_that_is_in_use() {
    let fixture = Fixture::shared().await;
    let (role, config) = with_schema_of_its_own(&fixture).await;
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    let observer = fixture.observer().await;
    let drop_one = format!("DROP TABLE {}_waiters", fixture.table);
    observer.batch_execute(&drop_one).await.unwrap();
    let other = lock_postgres::LeaseTableBackend::new(config).unwrap();
    other.connect().await.unwrap();
    let taken = acquire(&other, options("a", secs(60)).waits(false)).await;
    assert_safe!(taken.is_none(), "granted to two");
    assert_eq!(tables_in(&fixture, &role).await, [3, 0]);
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// As after a role with a schema of its own has used sessions.
#[testbed::test]
async fn the_tables_of_a_strategy_may_have_a_schema_of_their_own() {
    let fixture = Fixture::shared().await;
    let (role, config) = with_schema_of_its_own(&fixture).await;
    lock_postgres::schema::migrate(&fixture.config()).await.unwrap();
    let change = format!(
        "DROP TABLE {{}}_fences;ALTER TABLE {{}}_tokens SET SCHEMA \"{role}\";ALTER TABLE {{}}_readers SET SCHEMA \"{role}\";\
         ALTER TABLE \"{role}\".{{}}_tokens OWNER TO \"{role}\";ALTER TABLE \"{role}\".{{}}_readers OWNER TO \"{role}\""
    );
    let change = change.replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&change).await.unwrap();
    lock_postgres::schema::migrate(&config).await.unwrap();
    assert_eq!(tables_in(&fixture, &role).await, [3, 3]);
}

#[testbed::test]
async fn tables_that_are_in_two_schemas_are_not_completed() {
    let fixture = Fixture::shared().await;
    let (role, config) = with_schema_of_its_own(&fixture).await;
    let change = format!("DROP TABLE {{}}_waiters;ALTER TABLE {{}}_holders SET SCHEMA \"{role}\"");
    let change = change.replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&change).await.unwrap();
    let refused = lock_postgres::schema::migrate(&config).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured, "{refused}");
    let schemas = format!("in the schemas {role:?} and \"public\"");
    assert!(refused.to_string().contains(&schemas), "{refused}");
    assert_eq!(tables_in(&fixture, &role).await, [1, 1]);
}

/// As an entry of a process that was killed while it waited. The permission for the table of leases is optional.
#[testbed::test]
async fn without_a_permission_for_leases_the_queue_is_cleaned_up_again_and_again() {
    let fixture = Fixture::shared().await;
    let (role, config) = with_schema_of_its_own(&fixture).await;
    let observer = fixture.observer().await;
    let revoke = format!("REVOKE DELETE ON {}_leases FROM \"{role}\"", fixture.table);
    observer.batch_execute(&revoke).await.unwrap();
    let backend = lock_postgres::LeaseTableBackend::new(config).unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
    let connections = format!("SELECT count(*) FROM pg_stat_activity WHERE usename='{role}'");
    for _ in 0..2 {
        let killed = "INSERT INTO {}_waiters (name,place,holder,channel,kind,permits,\"of\",since,expires) \
                      VALUES ('b',1,gen_random_uuid(),'',0,1,1,now(),'-infinity')";
        observer
            .batch_execute(&killed.replace("{}", &fixture.table))
            .await
            .unwrap();
        // Longer than the time between two clean-ups.
        time::pause();
        time::advance(secs(13 * 3600)).await;
        time::resume();
        grant(&backend, "a", secs(60)).await.release().await;
        eventually("the entry is deleted, and the clean-up has ended", async || {
            fixture.number("SELECT count(*) FROM {}_waiters").await == 0 && fixture.number(&connections).await == 2
        })
        .await;
    }
}
