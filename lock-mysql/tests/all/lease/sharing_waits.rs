//! Marks of those who wait while others share the name, or to share it.

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Mode, Renewal};
use lock_mysql::LeaseTableBackend;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::sharing::{grant_in, permits, try_in};
use super::support::*;
use crate::support::*;

/// A request that waits, and its control.
struct Waiting {
    request: AcquireRequest,
    control: RequestControl,
    /// Nothing if it was given up.
    task: JoinHandle<Option<Granted>>,
}

impl Waiting {
    async fn granted(self) -> Granted {
        soon("granted", self.task).await.unwrap().expect("it waits")
    }
}

/// Asks for as long as it takes.
fn wait_in(backend: &LeaseTableBackend, mode: Mode) -> Waiting {
    let (request, control) = options("a", secs(60)).mode(mode).start();
    let (_, unused) = options("a", secs(60)).start();
    let task = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move {
            match backend.acquire(&request).await.unwrap() {
                Attempt::Granted(hold, _armed) => Some(Granted::new(hold, request, unused)),
                _ => None,
            }
        }
    });
    Waiting { request, control, task }
}

/// Waits until the row has this waiter's mark, and has it last.
async fn until_marked(observer: &mut Observer, fixture: &Fixture, waiter: &str) {
    let is_marked = format!("waiter='{waiter}' AND wanted>UNIX_TIMESTAMP(NOW(6))*1000000");
    until("marked", async || in_row(observer, fixture, "a", &is_marked).await == 1).await;
    // On a machine that is busy, it might not be refreshed in time.
    let prolong = "SET wanted=FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)+9000000";
    observer
        .run(&format!(
            "UPDATE {}_leases {prolong} WHERE name='a' AND waiter='{waiter}'",
            fixture.table
        ))
        .await;
}

#[testbed::test]
async fn a_writers_mark_keeps_new_readers_out_until_it_had_its_turn() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let reader = grant_in(&backend, "a", Shared).await;
    let writer = wait_in(&backend, Exclusive);
    until_marked(&mut observer, &fixture, &writer.request.holder().to_string()).await;
    assert!(try_in(&backend, "a", Shared).await.is_none());
    // Those who hold it are not concerned.
    assert!(matches!(
        reader.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert!(!writer.task.is_finished());
    reader.release().await;
    let written = writer.granted().await;
    assert!(written.token() > reader.token());
    written.release().await;
    grant_in(&backend, "a", Shared).await.release().await;
}

#[testbed::test]
async fn a_writer_that_leaves_takes_its_mark_along() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let first = grant_in(&backend, "a", permits(1, 3)).await;
    let writer = wait_in(&backend, Exclusive);
    until_marked(&mut observer, &fixture, &writer.request.holder().to_string()).await;
    assert!(try_in(&backend, "a", permits(1, 3)).await.is_none());
    writer.control.give_up();
    assert!(soon("given up", writer.task).await.unwrap().is_none());
    backend.abandon(&writer.request).await.unwrap();
    let second = grant_in(&backend, "a", permits(1, 3)).await;
    for granted in [first, second] {
        granted.release().await;
    }
}

/// So that readers do not wait for each other.
#[testbed::test]
async fn readers_that_wait_have_one_mark_and_enter_together() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let writer = grant_in(&backend, "a", Exclusive).await;
    let readers = [wait_in(&backend, Shared), wait_in(&backend, Shared)];
    until_marked(&mut observer, &fixture, "shared").await;
    writer.release().await;
    // A reader that did not wait enters with them, and a writer does not.
    let late = grant_in(&backend, "a", Shared).await;
    assert!(try_in(&backend, "a", Exclusive).await.is_none());
    for reader in readers {
        reader.granted().await.release().await;
    }
    late.release().await;
}

/// Who needs several permits keeps those that come back until there are enough. Who needs one keeps none from others.
#[testbed::test]
async fn a_request_for_many_permits_leaves_a_mark_and_one_for_one_does_not() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let held = [
        grant_in(&backend, "a", permits(1, 2)).await,
        grant_in(&backend, "a", permits(1, 2)).await,
    ];
    let small = wait_in(&backend, permits(1, 2));
    until("refused", async || small.request.last_busy().is_some()).await;
    assert_eq!(in_row(&mut observer, &fixture, "a", "wanted>0").await, 0);
    let large = wait_in(&backend, permits(2, 2));
    until_marked(&mut observer, &fixture, &large.request.holder().to_string()).await;
    held[0].release().await;
    assert!(try_in(&backend, "a", permits(1, 2)).await.is_none());
    held[1].release().await;
    large.granted().await.release().await;
    small.granted().await.release().await;
}

/// Each question of theirs is a transaction of ten statements.
#[testbed::test]
async fn those_who_wait_to_share_a_name_ask_seldom_and_are_woken() {
    const WAITERS: u64 = 4;
    let fixture = Fixture::own().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    for (held, wanted) in [
        (Exclusive, Shared),
        (permits(1, 1), permits(1, 1)),
        (Exclusive, permits(1, 9)),
    ] {
        let holder = grant_in(&first, "a", held).await;
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                let backend = backend(&fixture);
                (wait_in(&backend, wanted), backend)
            })
            .collect();
        until("all wait", async || {
            queued(&mut observer, &fixture, "a").await == WAITERS
        })
        .await;
        let (before, start) = (counted(&mut observer, "Questions").await, Instant::now());
        sleep(secs(5)).await;
        let asked = counted(&mut observer, "Questions").await - before;
        let most = start.elapsed().as_secs_f64() * (10 * WAITERS) as f64;
        assert!((asked as f64) < most, "{asked} statements, at most {most}");
        println!("{asked} statements for {wanted:?}");
        let start = Instant::now();
        holder.release().await;
        let mut entering = tokio::task::JoinSet::new();
        for (waiting, backend) in waiting {
            entering.spawn(async move {
                waiting.granted().await.release().await;
                drop(backend);
            });
        }
        while let Some(entered) = entering.join_next().await {
            entered.unwrap();
            println!("one more was in and out {:?} after the release", start.elapsed());
        }
    }
}

/// As one of more processes than there are queue entries.
#[testbed::test]
async fn a_waiter_that_found_no_queue_entry_looks_again() {
    let fixture = Fixture::own().await;
    let (first, second, mut observer) = (backend(&fixture), backend(&fixture), fixture.observer().await);
    // A request for one permit of several leaves no mark by which others could be known to wait.
    let held = [
        grant_in(&first, "a", permits(1, 2)).await,
        grant_in(&first, "a", permits(1, 2)).await,
    ];
    let mut others = fixture.observer().await;
    for entry in queue_entries(&fixture, "a") {
        assert_eq!(others.number(&format!("GET_LOCK({entry},0)")).await, 1);
    }
    observer
        .run("SET GLOBAL log_output='TABLE';TRUNCATE mysql.general_log;SET GLOBAL general_log=ON")
        .await;
    let waiting = wait_in(&second, permits(1, 2));
    let looked = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE '%CASE WHEN %GET_LOCK(%' \
                  AND argument NOT LIKE '%general_log%'";
    until("looked for", async || observer.number(looked).await > 0).await;
    observer.run("SET GLOBAL general_log=OFF").await;
    drop(others);
    until("queued", async || queued(&mut observer, &fixture, "a").await == 1).await;
    held[0].release().await;
    waiting.granted().await.release().await;
}

/// A writer and a reader wait apart, and the entries of both are named locks of one connection.
#[testbed::test]
async fn a_waiter_that_leaves_takes_no_other_queue_entry_along() {
    let fixture = Fixture::own().await;
    let (first, marked, both) = (backend(&fixture), backend(&fixture), backend(&fixture));
    let mut observer = fixture.observer().await;
    let holder = grant_in(&first, "a", Exclusive).await;
    let marked = wait_in(&marked, Exclusive);
    until_marked(&mut observer, &fixture, &marked.request.holder().to_string()).await;
    let writer = wait_in(&both, Exclusive);
    until("queued", async || queued(&mut observer, &fixture, "a").await == 1).await;
    let reader = wait_in(&both, Shared);
    until("both queued", async || queued(&mut observer, &fixture, "a").await == 2).await;
    writer.control.give_up();
    assert!(soon("given up", writer.task).await.unwrap().is_none());
    both.abandon(&writer.request).await.unwrap();
    until("the writer has left", async || {
        queued(&mut observer, &fixture, "a").await < 2
    })
    .await;
    assert_eq!(
        queued(&mut observer, &fixture, "a").await,
        1,
        "the reader's entry is there"
    );
    holder.release().await;
    marked.granted().await.release().await;
    reader.granted().await.release().await;
}

/// The server takes no connection of theirs that could sleep. They ask often at first, in the hope of a short hold.
#[testbed::test]
async fn those_whom_nobody_can_wake_ask_seldom_to_share_a_name() {
    const AT_FIRST: f64 = 100.0;
    let fixture = Fixture::own().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    // One connection that asks, and two that keep.
    observer
        .run("CREATE USER few@'%' IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 3;GRANT ALL ON *.* TO few@'%'")
        .await;
    let of_few = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='few'";
    for wanted in [Shared, permits(1, 9)] {
        let second = LeaseTableBackend::new(config(&fixture).with_user("few").with_password("few")).unwrap();
        grant(&second, "another", secs(60)).await.release().await;
        until("all connections are there", async || observer.number(of_few).await == 3).await;
        let holder = grant_in(&first, "a", Exclusive).await;
        let (before, start) = (counted(&mut observer, "Questions").await, Instant::now());
        let waiting = wait_in(&second, wanted);
        sleep(secs(4)).await;
        let asked = counted(&mut observer, "Questions").await - before;
        let most = AT_FIRST + 10.0 * start.elapsed().as_secs_f64();
        assert!((asked as f64) < most, "{asked} statements, at most {most}");
        assert!(waiting.request.last_busy().is_some());
        let sleeping = observer.statements().await;
        assert!(!sleeping.iter().any(|sql| sql.contains(":held")), "{sleeping:?}");
        holder.release().await;
        waiting.granted().await.release().await;
        drop(second);
        until("no connection is left", async || observer.number(of_few).await == 0).await;
    }
}

/// The writer sleeps at the server, and the release of the last reader wakes it: else it would ask after half a second at the
/// earliest. The reader's end by a downgraded hold is no other.
#[testbed::test]
async fn the_release_of_the_last_reader_wakes_the_writer() {
    let fixture = Fixture::own().await;
    let (backend, other, mut observer) = (backend(&fixture), backend(&fixture), fixture.observer().await);
    for mode in [Shared, permits(1, 2), Exclusive] {
        let holder = grant_in(&backend, "a", mode).await;
        if mode == Exclusive {
            holder.hold.downgrade(secs(60)).await.unwrap();
        }
        let writer = wait_in(&other, Exclusive);
        until_marked(&mut observer, &fixture, &writer.request.holder().to_string()).await;
        until("asleep", async || {
            let statements = observer.statements().await;
            let is_asleep = statements.iter().any(|sql| sql.contains(":held"));
            is_asleep && in_row(&mut observer, &fixture, "a", "sleeper>0").await == 1
        })
        .await;
        let before = counted(&mut observer, "COM_KILL").await;
        holder.release().await;
        let written = writer.granted().await;
        // The release wakes the writer, and its grant calls the next one. A permit's release calls those who wait for permits.
        let calls = 2 + u64::from(mode == permits(1, 2));
        until("woken and called", async || {
            counted(&mut observer, "COM_KILL").await - before == calls
        })
        .await;
        written.release().await;
    }
}
