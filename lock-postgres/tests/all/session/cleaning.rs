//! Rows that nobody needs any more.

use lock_core::backend::Mode;
use lock_postgres::SessionBackend;

use crate::lease::support::*;

const DAY: i64 = 86_400_000_000;

#[testbed::test]
async fn rows_of_names_that_nobody_uses_are_deleted() {
    let fixture = Fixture::shared().await;
    let backend = SessionBackend::new(fixture.session_config().with_retention(secs(3600))).unwrap();
    for name in ["old", "new", "ahead", "held"] {
        grant(&backend, name, secs(60)).await.release().await;
    }
    let _held = grant(&backend, "held", secs(60)).await;
    let _reader = try_in(&backend, "read", Mode::Shared).await.unwrap();
    let observer = fixture.observer().await;
    let change = format!(
        "UPDATE {0}_tokens SET last_token=last_token-{DAY} WHERE name IN ('old','held','read');\
         UPDATE {0}_tokens SET last_token=last_token+{DAY} WHERE name='ahead';\
         INSERT INTO {0}_readers (name,pid,holder,token) VALUES ('read',1,gen_random_uuid(),1)",
        fixture.table
    );
    observer.batch_execute(&change).await.unwrap();
    assert_eq!(happens("an answer", backend.clean_up()).await.unwrap(), 2);
    let left = "SELECT string_agg(encode(name,'escape'),',' ORDER BY name) FROM {}_tokens WHERE name<>''";
    assert_eq!(fixture.value(left).await.as_deref(), Some("ahead,held,new,read"));
    assert_eq!(fixture.number("SELECT count(*) FROM {}_readers").await, 1);
}
