//! How many connections a process has, counted at the server: docs/production.md has the table.

use lock_core::Locker;
use lock_mysql::{MySqlConfig, RowLockBackend};
use tokio::task::JoinSet;

use crate::support::*;

const NAMES: u64 = 20;

/// With a user of this test's own, by which the server tells its connections apart.
async fn fixture() -> (Fixture, Observer, MySqlConfig) {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    let user = format!("n_{}", fixture.table);
    observer
        .run(&format!(
            "CREATE USER '{user}'@'%' IDENTIFIED BY 's3cret'; GRANT ALL ON app.* TO '{user}'@'%'"
        ))
        .await;
    let config = fixture.config().with_user(user).with_password("s3cret");
    (fixture, observer, config)
}

async fn connections(observer: &mut Observer) -> u64 {
    let user = format!("n_{}", observer.table());
    let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='{user}'");
    observer.number(&sql).await
}

/// Two processes, as it were: each backend has connections of its own.
#[testbed::test]
async fn each_row_lock_and_each_name_that_is_waited_for_has_one() {
    let (_fixture, mut observer, config) = fixture().await;
    let [holder, waiter] = [(); 2].map(|()| Locker::new(RowLockBackend::new(config.clone()).unwrap()));
    holder.connect().await.unwrap();
    let idle = connections(&mut observer).await;
    assert!(idle <= 2, "{idle}: one, and one for housekeeping");

    let mut guards = Vec::new();
    for number in 0..NAMES {
        guards.push(
            soon("granted", holder.lock(format!("{number}")).acquire())
                .await
                .unwrap(),
        );
    }
    let held = connections(&mut observer).await;
    assert!((NAMES..=NAMES + 1).contains(&held), "{held}");

    let mut waiting = JoinSet::new();
    for number in 0..NAMES {
        // Two tasks wait for each name, at one place.
        for _ in 0..2 {
            let lock = waiter.lock(format!("{number}"));
            waiting.spawn(async move { lock.acquire().await?.release().await });
        }
    }
    let mut all = 0;
    until("all names are waited for", async || {
        all = connections(&mut observer).await;
        observer.waiters().await == NAMES as usize
    })
    .await;
    all = all.max(connections(&mut observer).await);
    assert!((2 * NAMES..=2 * NAMES + 2).contains(&all), "{all}");

    for guard in guards {
        guard.release().await.unwrap();
    }
    while let Some(waited) = soon("granted", waiting.join_next()).await {
        waited.unwrap().unwrap();
    }
    // They are kept for the next ones, for a minute.
    assert!(connections(&mut observer).await <= all);
}
