//! A try follows this process's own release of the name, whatever happens on the way: else it would be told that the
//! name is taken, of which nobody else has ever heard.

use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions};
use lock_core::{Guard, Locker};

use crate::support::{Fixture, Proxied, TTL, in_the_end, in_the_end_granted, request, take};

/// A guard is dropped, and the name is tried for at once.
async fn try_after_a_drop(locks: &Locker, guard: Guard) -> Guard {
    drop(guard);
    let tried = in_the_end(async || locks.lock("a").ttl(TTL).try_acquire().await).await;
    tried.expect("nobody else ever had it")
}

#[testbed::test]
async fn a_try_follows_a_release_of_which_the_server_has_forgotten_the_script() {
    let fixture = Fixture::new().await;
    let (locks, other) = (Locker::new(fixture.backend()), fixture.backend());
    let mut guard = locks.lock("a").ttl(TTL).acquire().await.expect("a grant");
    for step in 0..20 {
        let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
        // Of an acquire it knows the script again.
        take(&other, &format!("other-{step}")).await;
        guard = try_after_a_drop(&locks, guard).await;
    }
    guard.release().await.expect("still ours");
}

#[testbed::test]
async fn a_try_follows_a_release_that_waits_for_a_connection() {
    let fixture = Fixture::new().await;
    let locks = Locker::new(fixture.backend());
    let mut guard = locks.lock("a").ttl(TTL).acquire().await.expect("a grant");
    for _ in 0..5 {
        let listening: i64 = fixture.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        assert_eq!(listening, 1, "that is the backend's own connection");
        guard = try_after_a_drop(&locks, guard).await;
    }
    guard.release().await.expect("still ours");
}

#[testbed::test]
async fn a_try_does_not_wait_for_ever_for_a_release_that_is_never_answered() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    proxy.hold_requests();
    hold.release(ReleaseOptions::default())
        .await
        .expect_err("it never gets there");
    let (other, _control) = request("a", TTL);
    let tried = in_the_end(async || backend.acquire(&other).await).await;
    assert!(matches!(tried, Attempt::Busy(_)), "{tried:?}");
}
