//! Servers and networks that fail.

use std::sync::Arc;

use lock_core::backend::{Attempt, DistributedLock, ReleaseOutcome, Wait};
use lock_core::{ErrorKind, HoldState};
use lock_mysql::{MySqlConfig, RowLockBackend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::common::*;

/// A way to the server that can be stalled: connections stay open, and nothing gets through.
pub(crate) struct Cut {
    address: String,
    stalled: Arc<watch::Sender<bool>>,
}

impl Cut {
    pub(crate) async fn of(bed: &Bed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stalled = Arc::new(watch::Sender::new(false));
        let (server, gate) = (bed.server.address().to_owned(), stalled.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pump(from_client, to_server, gate.subscribe()));
                tokio::spawn(pump(from_server, to_client, gate.subscribe()));
            }
        });
        Self { address, stalled }
    }

    pub(crate) fn backend(&self, bed: &Bed) -> RowLockBackend {
        let url = format!("{}?response_timeout=3s", bed.server.url_at(&self.address));
        RowLockBackend::new(MySqlConfig::from_url(&url).unwrap().with_table(&bed.table)).unwrap()
    }

    pub(crate) fn stall(&mut self) {
        self.stalled.send_replace(true);
    }

    pub(crate) fn heal(&mut self) {
        self.stalled.send_replace(false);
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut stalled: watch::Receiver<bool>,
) {
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if stalled.wait_for(|stalled| !stalled).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_killed_server_is_noticed_and_a_restarted_one_used() {
    let bed = Bed::own().await;
    let backend = bed.backend();
    let held = grant(&backend, "a", secs(60)).await;
    // Idle connections that break as well.
    let (b, c) = (
        grant(&backend, "b", secs(60)).await,
        grant(&backend, "c", secs(60)).await,
    );
    b.release().await;
    c.release().await;
    bed.server.kill().unwrap();
    soon("lost", held.request.lease().ended()).await;
    assert!(matches!(held.state(), HoldState::Lost(_)));
    let (request, _control) = options("b", secs(10)).wait(Wait::No).start();
    let error = soon("unavailable", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable());
    let error = soon("unavailable", backend.abandon(&request)).await;
    bed.server.restart().await.unwrap();
    if error.is_err() {
        backend.abandon(&request).await.unwrap();
    }
    let next = grant(&backend, "a", secs(10)).await;
    assert!(next.token() > held.token());
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_server_that_lost_its_data_goes_on_with_larger_tokens() {
    let bed = Bed::own().await;
    let backend = bed.backend();
    let before = grant(&backend, "a", secs(60)).await;
    before.release().await;
    bed.server.restart_without_data().await.unwrap();
    let after = grant(&backend, "a", secs(60)).await;
    assert!(after.token() > before.token());
}

#[tokio::test]
async fn a_waiter_learns_of_a_killed_server_at_once() {
    let bed = Bed::own().await;
    let (backend, other) = (bed.backend(), bed.backend());
    let _held = grant(&backend, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = tokio::spawn({
        let (other, request) = (other.clone(), request.clone());
        async move { other.acquire(&request).await }
    });
    until("told", || async { request.last_busy().is_some() }).await;
    bed.server.kill().unwrap();
    let error = soon("unavailable", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    bed.server.restart().await.unwrap();
    // The same request once more.
    assert!(matches!(other.acquire(&request).await.unwrap(), Attempt::Granted(..)));
}

#[tokio::test]
async fn a_hold_outlives_a_paused_server() {
    let bed = Bed::own().await;
    let backend = bed.backend();
    let granted = grant(&backend, "a", secs(30)).await;
    bed.server.pause().unwrap();
    // The signal takes a moment.
    let unanswered = async {
        loop {
            if let Err(error) = granted.hold.renew(secs(30)).await {
                return error;
            }
        }
    };
    let error = soon("unanswered", unanswered).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(granted.state(), HoldState::Held);
    bed.server.resume().unwrap();
    granted.hold.renew(secs(30)).await.unwrap();
    assert_eq!(granted.state(), HoldState::Held);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn cut_off_in_silence_the_hold_is_lost_by_the_clock_and_free_at_the_server() {
    let bed = Bed::shared().await;
    let (backend, mut cut) = (bed.backend(), Cut::of(&bed).await);
    let through = cut.backend(&bed);
    let granted = grant(&through, "a", secs(2)).await;
    cut.stall();
    let next = tokio::spawn({
        let backend = backend.clone();
        async move { ask(&backend, options("a", secs(10))).await.unwrap() }
    });
    soon("lost", granted.request.lease().ended()).await;
    let next = soon("granted", next).await.unwrap();
    assert!(next.token() > granted.token());
    cut.heal();
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_can_be_repeated() {
    let bed = Bed::shared().await;
    let (mut observer, mut cut) = (bed.observer().await, Cut::of(&bed).await);
    let through = cut.backend(&bed);
    let granted = grant(&through, "a", secs(60)).await;
    cut.stall();
    let how = lock_core::backend::ReleaseOptions::default();
    let error = soon("unanswered", granted.hold.release(how)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    cut.heal();
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert!(!observer.is_locked("a").await);
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_is_undone_or_repeated() {
    let bed = Bed::shared().await;
    let (mut observer, mut cut) = (bed.observer().await, Cut::of(&bed).await);
    let through = cut.backend(&bed);
    through.connect().await.unwrap();
    for repeated in [false, true] {
        grant(&through, "a", secs(60)).await.release().await;
        cut.stall();
        let (request, _control) = options("a", secs(60)).wait(Wait::No).start();
        let error = soon("unanswered", through.acquire(&request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        cut.heal();
        if repeated {
            assert!(matches!(through.acquire(&request).await.unwrap(), Attempt::Granted(..)));
            assert!(observer.is_locked("a").await);
        }
        through.abandon(&request).await.unwrap();
        assert!(!observer.is_locked("a").await);
    }
}

#[tokio::test]
async fn another_runtime_takes_over() {
    let bed = Bed::shared().await;
    let backend = bed.backend();
    let elsewhere = std::thread::spawn({
        let backend = backend.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                grant(&backend, "a", secs(60)).await.release().await;
                grant(&backend, "a", secs(60)).await
            })
        }
    });
    let first = tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    // Its runtime is gone, and the connection with it.
    soon("lost", first.request.lease().ended()).await;
    let again = soon("granted", ask(&backend, options("a", secs(10)))).await.unwrap();
    assert!(again.token() > first.token());
    assert_eq!(first.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(again.release().await, ReleaseOutcome::Released);
}
