//! What happens to holds and requests when server or connection do not behave.

use lock_core::backend::{DistributedLock, Renewal};
use lock_core::{ErrorKind, HoldState};
use tokio::time::Instant;

use crate::support::{
    AT_MOST, Fixture, Proxied, QUICK, TTL, busy, eventually, granted, in_the_end, in_the_end_granted,
    in_the_end_released, refused, release, request, take, with_config,
};

#[testbed::test]
async fn a_server_that_is_just_starting_is_waited_for() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    fixture.server.kill().expect("it runs");
    let config = fixture.config().with_connect_timeout(AT_MOST);
    let backend = with_config(config);
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    fixture.server.restart().await.expect("it starts");
    connecting.await.expect("no panic").expect("it is there now");
}

#[testbed::test]
async fn an_outage_is_outlived_and_so_are_holds() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let (wanted, _control) = request("a", TTL);
    let hold = granted(&backend, &wanted).await;
    assert_eq!(wanted.lease().state(), HoldState::Held);
    fixture.server.kill().expect("it runs");
    eventually("the disconnect makes it suspect, without any request", async || {
        wanted.lease().state() == HoldState::Suspect
    })
    .await;
    let start = Instant::now();
    for _ in 0..20 {
        let error = refused(&backend, "b").await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.is_retryable());
    }
    assert!(start.elapsed() < AT_MOST, "failing is quick");
    assert!(hold.renew(TTL).await.is_err_and(|error| error.is_retryable()));

    fixture.server.restart().await.expect("it starts");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;
    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
    assert_eq!(wanted.lease().state(), HoldState::Held);
    busy(&backend, &request("a", TTL).0).await;
    assert!(release(&hold).await);
}

/// The connections of backends, as the server numbers them.
async fn ours(fixture: &Fixture) -> Vec<String> {
    let list: String = fixture.raw(&["CLIENT", "LIST"]).await;
    let is_ours = |line: &&str| line.contains("resp=3");
    let id = |line: &str| {
        line.trim_start_matches("id=")
            .split(' ')
            .next()
            .expect("an id")
            .to_owned()
    };
    list.lines().filter(is_ours).map(id).collect()
}

#[testbed::test]
async fn a_killed_connection_comes_back_by_itself() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let before = ours(&fixture).await;
    for id in &before {
        let _: i64 = fixture.raw(&["CLIENT", "KILL", "ID", id]).await;
    }
    // Nobody asks for anything meanwhile.
    eventually("it has reconnected", async || {
        ours(&fixture).await.iter().any(|id| !before.contains(id))
    })
    .await;
    in_the_end(async || backend.connect().await).await;
    assert!(release(&hold).await);
}

#[testbed::test]
async fn plain_load_is_not_taken_for_silence() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    backend.connect().await.expect("it is there");
    let before = ours(&fixture).await;
    let tasks: Vec<_> = (0..2000)
        .map(|number| {
            let backend = backend.clone();
            tokio::spawn(async move { release(&take(&backend, &format!("own-{number}")).await).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("an answer to each request"));
    }
    assert_eq!(ours(&fixture).await, before, "over one connection");
}

#[testbed::test]
async fn a_stopped_server_is_an_unknown_outcome_that_abandon_undoes() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = with_config(fixture.config().with_response_timeout(QUICK));
    in_the_end(async || backend.connect().await).await;
    let (unknown, _control) = request("a", TTL);
    fixture.server.pause().expect("it runs");
    let error = backend.acquire(&unknown).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    fixture.server.resume().expect("it is stopped");
    in_the_end(async || backend.abandon(&unknown).await).await;
    assert!(!fixture.exists("a").await);
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn a_request_that_was_given_up_ends_soon() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let config = fixture.config().with_response_timeout(AT_MOST);
    let backend = with_config(config);
    backend.connect().await.expect("it is there");
    let (request, control) = request("a", TTL);
    fixture.server.pause().expect("it runs");
    let start = Instant::now();
    let acquiring = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    drop(control);
    let error = acquiring.await.expect("no panic").expect_err("nobody answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < AT_MOST);
    fixture.server.resume().expect("it is stopped");
    backend.abandon(&request).await.expect("over the same connection");
    assert!(!fixture.exists("a").await);
    assert!(!fixture.raw::<bool>(&["EXISTS", &fixture.fence_key("a")]).await || !fence_has_tombstone(&fixture).await);
}

async fn fence_has_tombstone(fixture: &Fixture) -> bool {
    fixture.fence("a").await.contains(' ')
}

#[testbed::test]
async fn a_server_that_forgot_the_scripts_learns_them_again() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    for _ in 0..5 {
        let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
        let hold = take(&backend, "a").await;
        let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
        assert!(release(&hold).await);
    }
}

#[testbed::test]
async fn nothing_runs_on_when_the_last_user_has_gone() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config).await;
    let hold = take(&backend, "a").await;
    drop(backend);
    assert!(release(&hold).await, "a hold keeps the connection");
    drop(hold);
    proxy.drain_the_held().await;
    assert_eq!(proxy.connections(), 1);
}
