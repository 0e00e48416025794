//! The advisory lock of a transaction.

use lock_core::ErrorKind;
use lock_postgres::{KEY_OF, lock_in, try_lock_in};
use testbed::{PgBouncer, Postgres};

use testbed::happens;

use crate::fence::stock::{connect, shared_server};

#[testbed::test]
async fn one_transaction_at_a_time_has_the_lock_until_it_ends() {
    let url = shared_server().await.url();
    let [mut first, mut second] = [connect(&url).await, connect(&url).await];
    for commits in [true, false] {
        let mut one = first.transaction().await.unwrap();
        let mut two = second.transaction().await.unwrap();
        lock_in(&mut one, "a").await.unwrap();
        assert!(try_lock_in(&mut one, "a").await.unwrap(), "it has it");
        assert!(!try_lock_in(&mut two, "a").await.unwrap());
        assert!(try_lock_in(&mut two, "A").await.unwrap(), "another name");
        two.batch_execute("SET LOCAL lock_timeout = 100").await.unwrap();
        let error = lock_in(&mut two, "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("lock \"a\""), "{error}");
        two.rollback().await.unwrap();

        let waits = async {
            let mut two = second.transaction().await.unwrap();
            lock_in(&mut two, "a").await.unwrap();
        };
        tokio::pin!(waits);
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(200), &mut waits);
        assert!(waiting.await.is_err(), "two have it");
        match commits {
            true => one.commit().await.unwrap(),
            false => one.rollback().await.unwrap(),
        }
        happens("the wait ends", waits).await;
    }
}

#[testbed::test]
async fn a_connection_that_breaks_frees_the_lock() {
    let url = shared_server().await.url();
    let [mut first, mut second, killer] = [connect(&url).await, connect(&url).await, connect(&url).await];
    let mut one = first.transaction().await.unwrap();
    lock_in(&mut one, "breaks").await.unwrap();
    let pid: i32 = one.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    killer.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let mut two = second.transaction().await.unwrap();
    happens("an answer of the database", lock_in(&mut two, "breaks"))
        .await
        .unwrap();
    let error = happens("an answer of the database", lock_in(&mut one, "other"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable());
}

#[testbed::test]
async fn it_passes_a_pooler() {
    let server = Postgres::new().start().await.unwrap();
    let pool = PgBouncer::of(server.port()).start().await.unwrap();
    let [mut first, mut second] = [connect(&pool.url()).await, connect(&pool.url()).await];
    let mut one = first.transaction().await.unwrap();
    let mut two = second.transaction().await.unwrap();
    lock_in(&mut one, "a").await.unwrap();
    assert!(!try_lock_in(&mut two, "a").await.unwrap());
    one.commit().await.unwrap();
    assert!(try_lock_in(&mut two, "a").await.unwrap());
}

#[testbed::test]
async fn a_name_has_1_to_512_bytes_and_its_own_key() {
    let mut client = connect(&shared_server().await.url()).await;
    let mut tx = client.transaction().await.unwrap();
    for bad in ["", &"x".repeat(513)] {
        let error = lock_in(&mut tx, bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    }
    // Other versions of this crate, and other programs, take the same.
    for (name, key) in [("orders/42", 7494283056466398802_i64), ("a\0ö", 7065913952044145746)] {
        let sql = format!("SELECT {}", KEY_OF.trim_end().replace(":name", "$1"));
        let row = tx.query_one(&sql, &[&name.as_bytes()]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), key, "{name:?}");
        assert!(try_lock_in(&mut tx, name).await.unwrap());
        let (high, low) = (key >> 32, key & 0xffff_ffff);
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() \
                    AND classid = $1::bigint::oid AND objid = $2::bigint::oid AND objsubid = 1";
        let held: i64 = tx.query_one(held, &[&high, &low]).await.unwrap().get(0);
        assert_eq!(held, 1, "{name:?}");
    }
}
