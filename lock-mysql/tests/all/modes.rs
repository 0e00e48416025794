//! Readers share a row, and a writer has it alone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::backend::request::{RequestControl, RequestOptions};
use lock_core::backend::{
    AcquireRequest, Attempt, DistributedLock, Mode, Permits, ReleaseOptions, ReleaseOutcome, Renewal,
};
use lock_core::{ErrorKind, FencingToken, HoldState, Locker};
use lock_mysql::RowLockBackend;
use testbed::assert_safe;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::support::*;

/// Far enough ahead of the clock that no test catches up with it.
const AHEAD: u64 = 3_600_000_000;

fn reading(name: &str) -> RequestOptions {
    options(name, secs(20)).mode(Mode::Shared)
}

async fn read(backend: &RowLockBackend, name: &str) -> Granted {
    soon("a reader's grant", ask(backend, reading(name)))
        .await
        .expect("it waits for ever")
}

async fn write(backend: &RowLockBackend, name: &str) -> Granted {
    soon("a writer's grant", ask(backend, options(name, secs(20))))
        .await
        .expect("it waits for ever")
}

impl Observer {
    /// How many rows the table has, by whoever they were written and whether they are committed or not.
    async fn rows(&mut self) -> u64 {
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            .await;
        self.number(&format!("SELECT COUNT(*) FROM {}", self.table())).await
    }

    /// Ends all readers' connections.
    async fn kill_readers(&mut self) {
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            .await;
        // 0, which no connection has, if it has ended meanwhile.
        let find = format!(
            "COALESCE((SELECT connection FROM {} WHERE LEFT(name,1)=x'ff' LIMIT 1),0)",
            self.table()
        );
        while self.rows().await > 1 {
            let connection = self.number(&find).await;
            // It may be ending already.
            self.try_run(&format!("KILL CONNECTION {connection}")).await;
        }
    }
}

#[testbed::test]
async fn readers_share_the_row_and_leave_nothing() {
    let fixture = Fixture::shared().await;
    let (backend, other, mut observer) = (fixture.backend(), fixture.backend(), fixture.observer().await);
    let readers = [
        read(&backend, "a").await,
        read(&other, "a").await,
        read(&backend, "a").await,
    ];
    assert!(observer.is_locked("a").await);
    assert_eq!(observer.holder("a").await, None, "nobody has it alone");
    let status = backend.status(&name("a")).await.unwrap();
    let mut shown: Vec<_> = status.holders.iter().map(|holder| holder.token).collect();
    shown.sort();
    assert_eq!(
        shown,
        readers
            .iter()
            .map(|reader| Some(reader.hold.token()))
            .collect::<Vec<_>>()
    );
    for holder in &status.holders {
        assert_eq!(
            (holder.mode, holder.label.as_deref()),
            (Some(Mode::Shared), Some("tester"))
        );
    }
    assert!(!backend.status(&name("b")).await.unwrap().is_held());
    let busy = try_once(&other, "a").await.expect_err("readers have it");
    assert_eq!(busy.holder.as_deref(), Some("tester"));
    for reader in &readers {
        assert!(matches!(
            reader.hold.renew(secs(20)).await.unwrap(),
            Renewal::Renewed(_)
        ));
        assert_eq!(reader.release().await, ReleaseOutcome::Released);
        assert_eq!(reader.release().await, ReleaseOutcome::AlreadyLost);
    }
    assert_eq!(observer.rows().await, 1, "the name's own");
    assert!(!observer.is_locked("a").await);
    let writer = try_once(&other, "a").await.expect("it is free");
    assert!(writer.hold.token() > readers[2].hold.token());
    let busy = ask(&backend, reading("a").waits(false))
        .await
        .expect_err("a writer has it");
    assert_eq!(busy.holder.as_deref(), Some("tester"));
    assert_eq!(writer.release().await, ReleaseOutcome::Released);
}

/// Readers and writers that follow each other closely, end by a release or with their connections, and meet a clock that was
/// set back: each token is larger than all before.
#[testbed::test]
async fn tokens_grow_over_readers_and_writers() {
    let fixture = Fixture::shared().await;
    let (backend, other, mut observer) = (fixture.backend(), fixture.backend(), fixture.observer().await);
    let mut last = 0;
    let mut grows = |granted: &Granted, what: &str| {
        assert!(granted.token() > last, "{what}: {} after {last}", granted.token());
        last = granted.token();
    };
    for is_ahead in [false, true] {
        if is_ahead {
            // As a clock that was set back leaves it.
            observer
                .run(&format!("UPDATE {} SET token=token+{AHEAD}", fixture.table))
                .await;
        }
        for round in 0..6 {
            let readers = [read(&backend, "a").await, read(&other, "a").await];
            grows(&readers[0], "the first reader");
            grows(&readers[1], "the second reader");
            if round % 2 == 0 {
                observer.kill_readers().await;
            } else {
                readers[0].release().await;
                readers[1].release().await;
            }
            let writer = write(&other, "a").await;
            grows(&writer, "a writer after readers");
            if round % 3 == 0 {
                observer.kill_holder("a").await;
                soon("lost", writer.request.lease().ended()).await;
            } else {
                writer.release().await;
            }
            let again = write(&backend, "a").await;
            grows(&again, "a writer after a writer");
            again.release().await;
        }
    }
}

#[testbed::test]
async fn many_readers_at_once_have_different_tokens() {
    let fixture = Fixture::shared().await;
    let mut reading = JoinSet::new();
    for _ in 0..4 {
        let backend = Arc::new(fixture.backend());
        for _ in 0..8 {
            let backend = backend.clone();
            reading.spawn(async move { read(&backend, "a").await });
        }
    }
    let readers = reading.join_all().await;
    let mut tokens: Vec<_> = readers.iter().map(Granted::token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 32);
    for reader in &readers {
        reader.release().await;
    }
    assert!(write(&fixture.backend(), "a").await.token() > tokens[31]);
}

#[testbed::test]
async fn a_readers_token_is_above_its_floor() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let now = fixture.observer().await.number("UNIX_TIMESTAMP()*1000000").await;
    let floor = FencingToken::new(now + AHEAD).unwrap();
    let reader = ask(&backend, reading("a").token_above(floor)).await.unwrap();
    assert!(reader.hold.token() > floor);
    reader.release().await;
    assert!(write(&backend, "a").await.token() > reader.token());
}

/// A reader while it draws its token, which waits for a row that somebody else has locked: for a second at most.
struct Drawing {
    reader: JoinHandle<lock_core::Result<Attempt>>,
    request: AcquireRequest,
    _control: RequestControl,
    locker: Observer,
    locker_id: u64,
    began: Instant,
}

impl Drawing {
    /// `backend` has not been used before: a connection that was would be replaced.
    async fn begin(fixture: &Fixture, backend: &RowLockBackend, name: &str) -> Self {
        read(&fixture.backend(), name).await.release().await;
        let mut locker = fixture.observer().await;
        let locker_id = locker.number("CONNECTION_ID()").await;
        let tokens = format!("`{}_tokens`", fixture.table);
        locker.run(&format!("BEGIN; SELECT 1 FROM {tokens} FOR UPDATE")).await;
        let (backend, (request, control)) = (backend.clone(), reading(name).start());
        let asked = request.clone();
        let reader = tokio::spawn(async move { backend.acquire(&asked).await });
        let (began, draws) = (Instant::now(), format!("INSERT INTO {tokens}"));
        let mut observer = fixture.observer().await;
        until("drawing a token, or done with it", async || {
            let statements = observer.statements().await;
            reader.is_finished() || statements.iter().any(|statement| statement.starts_with(&draws))
        })
        .await;
        Self {
            reader,
            request,
            _control: control,
            locker,
            locker_id,
            began,
        }
    }

    /// The reader's answer, and whether its token was not waited for in vain.
    async fn end(mut self) -> (lock_core::Result<Attempt>, bool) {
        self.locker.run("COMMIT").await;
        let is_drawn = self.began.elapsed() < Duration::from_millis(800);
        (soon("the reader's answer", self.reader).await.unwrap(), is_drawn)
    }
}

/// A reader's token is drawn on another connection than the one that shares the row. If that one has ended by then, a writer
/// may have come in between, with a smaller token.
#[testbed::test]
async fn a_reader_that_lost_the_row_before_its_token_has_nothing() {
    // Connections are found by what they do, so that there may be no others.
    let fixture = Fixture::own().await;
    for attempt in 0..20 {
        let name = format!("a{attempt}");
        let (backend, other) = (fixture.backend(), fixture.backend());
        let mut observer = fixture.observer().await;
        other.connect().await.unwrap();
        let drawing = Drawing::begin(&fixture, &backend, &name).await;
        let shares = observer
            .number(&format!(
                "SELECT MAX(trx_mysql_thread_id) FROM information_schema.INNODB_TRX \
                 WHERE trx_state='RUNNING' AND trx_mysql_thread_id NOT IN ({},CONNECTION_ID())",
                drawing.locker_id
            ))
            .await;
        observer.run(&format!("KILL CONNECTION {shares}")).await;
        until("free", async || !fixture.observer().await.is_locked(&name).await).await;
        let writer = try_once(&other, &name).await.expect("it is free");
        let request = drawing.request.clone();
        let (outcome, is_drawn) = drawing.end().await;
        assert_eq!(request.lease().state(), HoldState::Released, "nothing has armed it");
        assert_safe!(outcome.is_err(), "granted beside a writer: {outcome:?}");
        assert_eq!(writer.release().await, ReleaseOutcome::Released);
        if is_drawn {
            return;
        }
    }
    panic!("the token was never drawn in time");
}

/// A reader that has the row draws its token although a writer waits for the row meanwhile.
#[testbed::test]
async fn a_writer_that_waits_does_not_stop_a_reader_that_has_the_row() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    for attempt in 0..20 {
        let (backend, other) = (fixture.backend(), fixture.backend());
        let name = format!("a{attempt}");
        let drawing = Drawing::begin(&fixture, &backend, &name).await;
        let (writing, written) = (other.clone(), name.clone());
        let writer = tokio::spawn(async move { write(&writing, &written).await });
        // On a busy machine the reader may have given up before.
        until("waiting, or granted", async || {
            writer.is_finished() || observer.waiters().await == 1
        })
        .await;
        let request = drawing.request.clone();
        let (outcome, is_drawn) = drawing.end().await;
        if !is_drawn {
            backend.abandon(&request).await.unwrap();
            soon("the writer's grant", writer).await.unwrap().release().await;
            continue;
        }
        let Attempt::Granted(hold, _) = outcome.expect("it has the row") else {
            panic!("it has the row");
        };
        let released = hold.release(ReleaseOptions::default()).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        let writer = soon("the writer's grant", writer).await.unwrap();
        assert!(writer.hold.token() > hold.token());
        assert_eq!(writer.release().await, ReleaseOutcome::Released);
        return;
    }
    panic!("the token was never drawn in time");
}

/// Whatever an abandoned or dropped reader has begun, nothing is left of it.
#[testbed::test]
async fn an_abandoned_reader_leaves_nothing() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    // A busy machine takes many polls.
    let stays = options("a", secs(600)).mode(Mode::Shared);
    let stays = ask(&backend, stays).await.unwrap();
    for polls in 0.. {
        let (request, _control) = reading("a").start();
        let mut acquiring = Box::pin(backend.acquire(&request));
        let mut is_done = false;
        for _ in 0..polls {
            is_done = acquiring.as_mut().now_or_never().is_some();
            if is_done {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(acquiring);
        backend.abandon(&request).await.unwrap();
        assert_eq!(
            observer.rows().await,
            2,
            "the name's own and the reader that stays, after {polls} polls"
        );
        if is_done {
            break;
        }
    }
    assert_eq!(stays.release().await, ReleaseOutcome::Released);
    assert_eq!(observer.rows().await, 1);
    assert!(!observer.is_locked("a").await);
}

#[testbed::test]
async fn a_reader_is_lost_with_its_connection_and_no_other_is() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let lost = read(&backend, "a").await;
    observer.kill_readers().await;
    let stays = read(&backend, "a").await;
    soon("lost", lost.request.lease().ended()).await;
    assert!(matches!(lost.state(), HoldState::Lost(_)));
    assert_eq!(lost.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(stays.state(), HoldState::Held);
    assert_eq!(observer.rows().await, 2);
    assert_eq!(stays.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_reader_is_passed_on_to_nobody() {
    let fixture = Fixture::shared().await;
    let reader = ask(&fixture.backend(), reading("a").reserve(9)).await.unwrap();
    assert!(reader.hold.pass(&lock_core::backend::Lease::new(name("a"))).is_none());
    assert_eq!(reader.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn what_a_row_cannot_keep_is_refused() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    for mode in [Mode::Upgradable, Mode::Permits(Permits::new(1, 2).unwrap())] {
        let (request, _control) = options("a", secs(20)).mode(mode).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.is_not_executed());
    }
    let locks = Locker::new(backend);
    let error = locks.rw_lock("a").upgradable().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = locks.semaphore("a", 2).permits(1).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let mut writing = locks.rw_lock("a").write().acquire().await.unwrap();
    let error = writing.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    writing.release().await.unwrap();
}
