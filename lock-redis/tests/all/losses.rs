//! What a lost hold says of its loss.

use std::time::Duration;

use lock_core::{ErrorKind, Guard, Locker, Lost, LostCause};
use lock_redis::RedisConfig;

use crate::support::*;

/// Renewed every second.
const SHORT: Duration = Duration::from_secs(3);

async fn held(config: RedisConfig, name: &str) -> Guard {
    let locks = Locker::new(with_config(config)).with_ttl(SHORT);
    locks.lock(name).acquire().await.expect("a free lock")
}

async fn lost(guard: &Guard) -> Lost {
    testbed::happens("the loss, when its lease has ended", guard.lost()).await
}

#[testbed::test]
async fn a_server_that_was_stopped_is_named() {
    let Some(fixture) = Fixture::own().await else { return };
    // If the machine stands still for the TTL, the lease ends before a renewal fails.
    in_some_run("a failed renewal is not the error", async || {
        let guard = held(fixture.config(), "a").await;
        fixture.server.kill().unwrap();
        let lost = lost(&guard).await;
        assert_eq!(lost.cause(), LostCause::Expired);
        assert!(
            lost.last_confirmed().is_some() && lost.lease_ended().is_some(),
            "{lost}"
        );
        if lost.error().is_none_or(|error| error.kind() != ErrorKind::Unavailable) {
            fixture.server.restart().await.expect("it starts again");
            return Err(lost);
        }
        assert!(lost.to_string().contains(fixture.server.address()), "{lost}");
        Ok(())
    })
    .await;
}

#[testbed::test]
async fn a_deleted_key_is_what_the_server_says() {
    let fixture = Fixture::new().await;
    // If the machine stands still for the TTL, the lease ends first.
    in_some_run("its server's answer is not the cause", async || {
        let guard = held(fixture.config(), "a").await;
        let deleted: u32 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
        let lost = lost(&guard).await;
        if lost.cause() == LostCause::Expired {
            return Err(lost);
        }
        assert_eq!((deleted, lost.cause()), (1, LostCause::NotHeld), "{lost}");
        assert!(lost.error().is_none() && lost.last_confirmed().is_some(), "{lost}");
        Ok(())
    })
    .await;
}

/// A connection that was killed costs no hold. If there can be no other one, as the password was changed, the loss says that.
#[testbed::test]
async fn a_changed_password_is_named() {
    let Some(fixture) = Fixture::own_of(testbed::Redis::new().password("old")).await else {
        return;
    };
    // If the machine stands still for the TTL, no dial is refused before the lease ends.
    in_some_run("the refusal is not the error", async || {
        let _changed: String = fixture.raw(&["CONFIG", "SET", "requirepass", "old"]).await;
        let guard = held(fixture.config(), "a").await;
        let _changed: String = fixture.raw(&["CONFIG", "SET", "requirepass", "new"]).await;
        let killed: u32 = fixture.raw(&["CLIENT", "KILL", "SKIPME", "yes"]).await;
        assert!(killed > 0, "nobody was connected");
        let lost = lost(&guard).await;
        assert_eq!(lost.cause(), LostCause::Expired);
        if lost.error().is_none_or(|error| error.kind() != ErrorKind::Denied) {
            return Err(lost);
        }
        assert!(lost.to_string().contains("WRONGPASS"), "{lost}");
        let released = guard.release().await.unwrap_err();
        assert!(
            released.is_lost() && released.to_string().contains("WRONGPASS"),
            "{released}"
        );
        Ok(())
    })
    .await;
}
