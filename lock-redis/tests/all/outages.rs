//! Outages that last: nobody gives up, and whoever waited is there when the server is.

use lock_core::{ErrorKind, Locker};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, pause, resume};

use crate::support::{AT_MOST, Fixture, SECOND, TTL, eventually, stays_below, with_config};

/// A way to the server that can be shut: then everybody is turned away, and counted.
struct Door {
    address: String,
    is_open: watch::Sender<bool>,
    turned_away: watch::Receiver<u32>,
}

impl Door {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let ((is_open, open), (turn_away, turned_away)) = (watch::channel(true), watch::channel(0));
        let server = server.to_owned();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if !*open.borrow() {
                    turn_away.send_modify(|count| *count += 1);
                    continue;
                }
                let (server, mut open) = (server.clone(), open.clone());
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.expect("it is there");
                    tokio::select! {
                        // Whichever side has ended it.
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self {
            address,
            is_open,
            turned_away,
        }
    }

    fn shut(&self) {
        self.is_open.send_replace(false);
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Returns when so many more have been turned away.
    async fn turns_away(&self, many: u32) {
        let mut turned_away = self.turned_away.clone();
        let until_now = *turned_away.borrow();
        let done = turned_away.wait_for(|count| *count >= until_now + many).await;
        done.expect("it stands");
    }

    /// One that knows the server already.
    async fn locker(&self, fixture: &Fixture) -> Locker {
        let backend = with_config(fixture.config_at(&self.address));
        let locks = Locker::new(backend);
        let guard = locks.lock("before").acquire().await.expect("a grant");
        guard.release().await.expect("still ours");
        locks
    }
}

#[testbed::test]
async fn a_waiter_outlasts_an_outage_of_minutes() {
    let fixture = Fixture::new().await;
    let door = Door::to(fixture.server.address()).await;
    let locks = door.locker(&fixture).await;
    // From here on pauses take no time.
    pause();
    let start = Instant::now();
    door.shut();
    let waiting = tokio::spawn({
        let lock = locks.lock("a").ttl(TTL);
        async move { lock.acquire().await }
    });
    // Far more than a driver's own manager of connections would try.
    door.turns_away(100).await;
    assert!(
        start.elapsed() >= 20 * SECOND,
        "{:?}: it is hammered on",
        start.elapsed()
    );
    assert!(!waiting.is_finished());
    resume();
    door.open();
    let guard = waiting.await.expect("no panic").expect("a grant");
    guard.release().await.expect("still ours");
    locks.shutdown().await.expect("nothing is left");
}

#[testbed::test]
async fn tries_during_an_outage_leave_nothing_to_undo() {
    let fixture = Fixture::new().await;
    let door = Door::to(fixture.server.address()).await;
    let locks = door.locker(&fixture).await;
    door.shut();
    door.turns_away(1).await;
    let tries: Vec<_> = (0..200)
        .map(|number| {
            let lock = locks.lock(format!("try-{number}"));
            tokio::spawn(async move { lock.try_acquire().await.map(drop).expect_err("the door is shut") })
        })
        .collect();
    for error in tries {
        assert_eq!(error.await.expect("no panic").kind(), ErrorKind::Unavailable);
    }
    // The door is shut still.
    locks.shutdown().await.expect("nothing was sent for any of them");
}

#[testbed::test]
async fn a_try_right_after_an_outage_does_not_fail_without_asking() {
    let fixture = Fixture::new().await;
    let door = Door::to(fixture.server.address()).await;
    let locks = door.locker(&fixture).await;
    for lock in ["a", "b", "c"] {
        door.shut();
        // Pauses take no time here. By now the supervisor pauses for about as long as all this would have taken.
        pause();
        door.turns_away(5).await;
        resume();
        locks
            .lock(lock)
            .try_acquire()
            .await
            .map(drop)
            .expect_err("the door is shut");
        door.open();
        let guard = locks.lock(lock).try_acquire().await.expect("the door is open");
        guard.expect("it is free").release().await.expect("still ours");
    }
}

#[testbed::test]
async fn a_waiter_whose_refresh_fell_into_an_outage_asks_again_soon_after_it() {
    // Sooner than the refresh of its entry, which comes after 4 s at least.
    stays_below(4 * SECOND, "it waited for its refresh", async || {
        let fixture = Fixture::new().await;
        let door = Door::to(fixture.server.address()).await;
        let locks = door.locker(&fixture).await;
        // Of a holder that wakes nobody: so its waiters ask again and again.
        let _: () = fixture
            .raw(&["SET", &fixture.lock_key("a"), "theirs", "PX", "60000"])
            .await;
        let waiting = tokio::spawn({
            let lock = locks.lock("a").ttl(TTL);
            async move { lock.acquire().await }
        });
        eventually("it waits", async || !fixture.queue("a").await.is_empty()).await;
        door.shut();
        door.turns_away(5).await;
        let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
        let start = Instant::now();
        door.open();
        let guard = waiting.await.expect("no panic").expect("a grant");
        let waited = start.elapsed();
        guard.release().await.expect("still ours");
        waited
    })
    .await;
}

/// No more releases can wait than there were holds, since nothing is granted in an outage. They go out at once when the server is
/// back, and new acquires do not wait behind them.
#[testbed::test]
async fn guards_dropped_in_an_outage_are_given_back_and_keep_nobody_waiting() {
    const MANY: usize = 2000;
    const TASKS: usize = 100;
    let Some(fixture) = Fixture::own().await else { return };
    let locks = Locker::new(fixture.backend()).with_ttl(TTL);
    let mut guards = Vec::with_capacity(MANY);
    for number in 0..MANY {
        let lock = locks.lock(format!("held/{number}"));
        guards.push(lock.acquire().await.expect("a free lock"));
    }
    fixture.server.pause().unwrap();
    drop(guards);
    tokio::time::sleep(2 * SECOND).await;
    fixture.server.resume().unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = locks.lock(format!("new/{task}"));
        tasks.spawn(async move { lock.acquire_within(AT_MOST).await?.release().await });
    }
    for answered in tasks.join_all().await {
        answered.expect("granted and released");
    }
    locks.shutdown().await.expect("all were given back");
    let left: Vec<String> = fixture.raw(&["KEYS", &fixture.lock_key("held/*")]).await;
    assert!(left.is_empty(), "{} are held yet", left.len());
}
