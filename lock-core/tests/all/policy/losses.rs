//! What a loss says: the error, when the hold was last confirmed, and when its lease ended.

use std::time::Duration;

use lock_core::backend::SentAt;
use lock_core::{Ended, Error, ErrorKind, HoldState, Locker, Lost, LostCause, MemoryBackend, acquire_all};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

fn text(lost: &Lost) -> String {
    lost.to_string()
}

#[tokio::test(start_paused = true)]
async fn an_expired_hold_names_the_error_of_its_last_renewal() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    backend.next(Request::Renew, [Answer::Fail]);
    backend.next(Request::Renew, [Answer::Deny; 20]);
    let lost = guard.lost().await;
    assert_eq!(lost.cause(), LostCause::Expired);
    let error = lost.error().expect("renewals failed");
    assert_eq!(error.kind(), ErrorKind::Denied, "the last one: {error}");
    assert_eq!(lost.last_confirmed(), Some(TTL - TTL / 10));
    assert_eq!(lost.lease_ended(), Some(Duration::ZERO));

    // Whoever asks, however late, is told the same.
    tokio::time::sleep(seconds(5)).await;
    let expected = text(&lost);
    assert!(
        expected.contains("it was not renewed in time (last confirmed 8.1s before, the lease ended just before):"),
        "{expected}"
    );
    assert_eq!(guard.check().unwrap_err(), lost);
    assert!(matches!(guard.state(), HoldState::Lost(told) if text(&told) == expected));
    assert!(matches!(watch.ended().await, Ended::Lost(told) if text(&told) == expected));
    let ran = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(text(&ran), expected);
    let released = guard.release().await.unwrap_err().to_string();
    let why = expected.split_once("was lost: ").unwrap().1;
    assert_eq!(released, format!("lock \"a\": the hold was lost: {why}"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_hold_says_that_the_server_was_silent() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Hang; 10]);
    let lost = guard.lost().await;
    assert!(
        text(&lost).ends_with("a renewal was not answered within 1.5s"),
        "{lost}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_went_wrong_before_a_success_is_forgotten() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Fail]);
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(guard.state(), HoldState::Held);
    backend.next(Request::Renew, [Answer::NotHeld]);
    let lost = guard.lost().await;
    assert_eq!((lost.cause(), lost.lease_ended()), (LostCause::NotHeld, None));
    assert!(lost.error().is_none(), "{lost}");
    assert_eq!(lost.last_confirmed(), Some(seconds(3)));
}

/// The server's own word counts more than the errors before it; an ended connection says why it ended.
#[tokio::test(start_paused = true)]
async fn a_backend_says_what_its_connection_failed_with() {
    let wrong = || Error::new(ErrorKind::Denied, "wrong password");
    for (cause, expected) in [
        (LostCause::Disconnected, Some("wrong password".to_owned())),
        (LostCause::NotHeld, None),
    ] {
        let (backend, locks) = scripted();
        let guard = locks.lock("a").acquire().await.unwrap();
        let lease = backend.last_request().lease().clone();
        lease.suspect_because(Error::new(ErrorKind::Unavailable, "the connection broke"));
        lease.suspect_because(wrong());
        lease.suspect();
        lease.lose(cause);
        let lost = guard.check().unwrap_err();
        assert_eq!(lost.error().map(ToString::to_string), expected);
    }
    // An arming clears it.
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let lease = backend.last_request().lease().clone();
    lease.suspect_because(wrong());
    lease.arm(SentAt::now(), TTL).unwrap();
    lease.lose(LostCause::Disconnected);
    assert!(guard.check().unwrap_err().error().is_none());
}

/// A hold whose release finds it gone: the release and the watch say what is known.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_hold_that_had_ended_says_why() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    tokio::time::sleep(seconds(1)).await;
    backend.next(Request::Release, [Answer::NotHeld]);
    let released = guard.release().await.unwrap_err();
    let expected = "lock \"a\": the hold had ended before it was released: \
                    the server says that it is not ours any more (last confirmed 1.0s before)";
    assert_eq!(released.to_string(), expected);
    let cause = released.cause().and_then(|cause| cause.downcast_ref::<LostCause>());
    assert_eq!(cause, Some(&LostCause::NotHeld));
    let Ended::Lost(lost) = watch.ended().await else {
        panic!("a release is no loss, but this hold was lost before");
    };
    assert_eq!(
        (lost.cause(), lost.last_confirmed()),
        (LostCause::NotHeld, Some(seconds(1)))
    );
    assert!(lost.error().is_none() && lost.lease_ended().is_none(), "{lost}");

    let guard = locks.lock("b").acquire().await.unwrap();
    let watch = guard.watch();
    backend.before(Request::Release, "b", |lease| async move {
        lease.lose_because(
            LostCause::Disconnected,
            Error::new(ErrorKind::Unavailable, "it was killed"),
        );
        Ok(())
    });
    backend.next(Request::Release, [Answer::NotHeld]);
    let released = guard.release().await.unwrap_err().to_string();
    let expected = "the connection to which it was bound has ended (last confirmed just before): it was killed";
    assert!(released.ends_with(expected), "{released}");
    let Ended::Lost(lost) = watch.ended().await else {
        panic!("a release is no loss, but this hold was lost before");
    };
    assert_eq!(lost.error().map(ToString::to_string).as_deref(), Some("it was killed"));
}

/// The server is away from the beginning of the release until the lease has ended. Nobody relies on the hold then.
#[tokio::test(start_paused = true)]
async fn a_hold_that_ends_during_its_release_is_not_lost() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone())
        .with_ttl(TTL)
        .with_operation_timeout(3 * TTL);
    let guard = locks.lock("a").acquire().await.unwrap();
    let both = acquire_all([locks.lock("b"), locks.lock("c")]).await.unwrap();
    let watch = guard.watch();
    server.set_available(false);
    let (one, two, ()) = tokio::join!(guard.release(), both.release(), async {
        tokio::time::sleep(TTL + seconds(1)).await;
        server.set_available(true);
    });
    let expected = "the release was not answered while the lease lasted; the hold has ended by now";
    for (name, error) in [("a", one.unwrap_err()), ("b", two.unwrap_err())] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.to_string(), format!("lock {name:?}: {expected}"));
    }
    assert_eq!(watch.ended().await, Ended::Released);
}

/// Whoever ends a connection says why.
#[tokio::test(start_paused = true)]
async fn a_backend_says_why_it_lost_the_hold() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let lease = backend.last_request().lease().clone();
    let why = |text: &'static str| Error::new(ErrorKind::Unavailable, text);
    lease.suspect_because(why("silent"));
    lease.lose_because(LostCause::Disconnected, why("killed"));
    lease.lose_because(LostCause::Disconnected, why("closed later"));
    let lost = guard.check().unwrap_err();
    assert_eq!(lost.error().map(ToString::to_string).as_deref(), Some("killed"));
}

/// "0ns" says nothing to anybody.
#[tokio::test(start_paused = true)]
async fn no_text_says_0ns() {
    let (backend, locks) = scripted();
    let mut texts = Vec::new();
    for (name, answer) in [("a", Answer::Fail), ("b", Answer::Deny), ("c", Answer::GiveUp)] {
        let lock = locks.lock(name);
        backend.next(Request::Acquire, [answer]);
        texts.push(lock.acquire_within(Duration::ZERO).await.unwrap_err().to_string());
        backend.next(Request::Acquire, [answer]);
        texts.push(lock.try_acquire().await.unwrap_err().to_string());
        backend.clear();
    }
    let elsewhere = Locker::new(backend.clone());
    let _taken = elsewhere.lock("d").acquire().await.unwrap();
    let taken = locks.lock("d").acquire_within(Duration::ZERO).await.unwrap_err();
    assert!(taken.to_string().contains("not acquired at once"), "{taken}");
    texts.push(taken.to_string());
    assert!(texts.iter().all(|text| !text.contains("0ns")), "{texts:#?}");
}
