//! A master that becomes a replica and a master again, while clients stay connected to it.

use testbed::Replicated;

use super::*;

/// A master that another one replaced, which grants locks of which this one does not hear.
async fn master() -> (Replicated, Fixture) {
    let servers = Redis::new().start_replicated(1).await.expect("they start");
    let fixture = Fixture::at(servers[0].clone()).await;
    (servers, fixture)
}

/// The other one grants a lock, and the first becomes a replica of nobody that it reaches, and the master again.
async fn replaced_meanwhile(servers: &Replicated, fixture: &Fixture) {
    servers.promote(1).await.expect("it takes over");
    let other = with_config(fixture.config_at(servers[1].address()));
    let _until_its_ttl = take_for(&other, "a", TTL).await;
    let before: u64 = fixture.raw(&["CLIENT", "ID"]).await;
    let _: () = fixture.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    servers.promote(0).await.expect("it is the master again");
    let after: u64 = fixture.raw(&["CLIENT", "ID"]).await;
    assert_eq!(before, after, "clients stay connected");
}

#[testbed::test]
async fn no_grant_is_fresh_over_a_connection_from_before_a_demotion() {
    let (servers, fixture) = master().await;
    let backend = trusted(&fixture).await;
    replaced_meanwhile(&servers, &fixture).await;
    let error = refused_for(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable() && error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("was promoted"), "{error}");
    assert!(!fixture.exists("a").await);
    in_the_end(async || backend.connect().await).await;
    assert_delayed(&refused_for(&backend, "a").await);

    age_mark(&fixture).await;
    let later = delayed(&fixture, DELAY);
    assert!(release(&take_for(&later, "b", TTL).await).await, "it is trusted again");
}

#[testbed::test]
async fn a_waiter_waits_for_the_delay_after_a_demotion() {
    /// Of a hold that lives through the change of masters on a busy machine.
    const WHILE: Duration = Duration::from_secs(6);
    // If the machine stands still for so long, the waiter may have been granted the name before the change.
    in_some_run("the hold does not live through the change", async || {
        let (servers, fixture) = master().await;
        drop(trusted(&fixture).await);
        let locks = Locker::new(delayed(&fixture, WHILE)).with_ttl(WHILE);
        let holder = locks.lock("b").acquire_within(AT_MOST).await.expect("a grant");
        let waiting = tokio::spawn({
            let lock = Locker::new(delayed(&fixture, WHILE)).with_ttl(WHILE).lock("b");
            async move { lock.acquire_within(AT_MOST).await }
        });
        eventually("it waits, or waited", async || {
            waiting.is_finished() || fixture.queue("b").await.len() == 1
        })
        .await;
        let start = Instant::now();
        replaced_meanwhile(&servers, &fixture).await;
        match holder.release().await {
            Err(error) if error.is_lost() => return Err(error),
            released => drop(released.expect("an answer")),
        }
        let guard = waiting.await.expect("no panic").expect("a grant");
        // The server counts whole milliseconds.
        assert!(start.elapsed() >= WHILE - SECOND / 100, "{:?}", start.elapsed());
        release_short(guard).await;
        Ok(())
    })
    .await;
}

#[testbed::test]
async fn a_hold_is_put_back_over_a_connection_from_before_a_demotion() {
    let (servers, fixture) = master().await;
    let backend = trusted(&fixture).await;
    let (alone, shared) = (take_for(&backend, "alone", TTL).await, {
        let options = RequestOptions::new(crate::support::name("shared"), Terms::new(TTL)).mode(Mode::Shared);
        let (asked, _control) = options.start();
        granted(&backend, &asked).await
    });
    let value = fixture.value("alone").await;
    replaced_meanwhile(&servers, &fixture).await;
    // As if it had got data from somebody who did not know them.
    let keys = ["alone", "shared"].map(|name| fixture.lock_key(name));
    let deleted: u64 = fixture.raw(&["DEL", &keys[0], &keys[1]]).await;
    assert_eq!(deleted, 2);
    for hold in [&alone, &shared] {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    assert_eq!(fixture.value("alone").await, value);
    assert!(release(&alone).await && release(&shared).await);
}
