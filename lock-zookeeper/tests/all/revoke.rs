//! Forced release: by the token that the server knows, or that the holder writes soon after its grant.

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Hold, LockStatus, Mode, ReleaseOptions, ReleaseOutcome, Revoke, Revoked};
use lock_core::{ErrorKind, FencingToken};
use zookeeper_client::CreateMode;

use crate::support::*;

fn token_after(hold: &dyn Hold, number: u64) -> FencingToken {
    FencingToken::new(hold.token().as_u64() + number).expect("a token")
}

/// Others cannot tell by which list it was granted. An old token names nobody, though it is in the range of the possible ones.
#[testbed::test]
async fn a_hold_that_waited_shows_its_token_soon_and_is_revoked_by_it() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (
        short_lived(server, &root),
        backend(server, &root),
        observer(server).await,
    );
    let directory = format!("{root}/a");
    let (first, _request, _control) = hold(&two, "a").await;
    let (request, control) = labelled("a", Some("host")).start();
    let second = start_waiting(&one, (&client, &directory), 2, (request, control)).await;
    let third = start_waiting(&two, (&client, &directory), 3, waiting("a")).await;
    first.release(ReleaseOptions::default()).await.unwrap();
    let (second, _control) = happens("the grant", second).await.unwrap();
    let revoke = async |token| {
        happens("the revocation", two.revoke(&name("a"), token, Revoke::Now))
            .await
            .unwrap()
    };
    assert_eq!(revoke(first.token()).await, Revoked::NotHeld);
    assert_eq!(revoke(token_after(&*second, 16)).await, Revoked::NotHeld);
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!(
        status.holders[0].token,
        Some(second.token()),
        "the revoke waited for it"
    );
    assert_eq!(status.holders[0].label.as_deref(), Some("host"));
    assert!(is_held(&*second).await);
    assert_eq!(revoke(token_after(&*second, 15)).await, Revoked::done(None));
    let (third, _control) = happens("the grant", third).await.unwrap();
    assert!(third.token() > second.token());
    assert!(!is_held(&*second).await);
    assert_eq!(
        happens("the release", second.release(ReleaseOptions::default()))
            .await
            .unwrap(),
        ReleaseOutcome::AlreadyLost
    );
    assert_eq!(revoke(second.token()).await, Revoked::NotHeld);
    assert!(is_held(&*third).await);
}

async fn is_held(hold: &dyn Hold) -> bool {
    let renewed = happens("the renewal", hold.renew(TTL)).await.unwrap();
    matches!(renewed, lock_core::backend::Renewal::Renewed(_))
}

/// What is written for the token leaves what others look for in the data.
#[testbed::test]
async fn the_token_is_written_beside_other_marks() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (short_lived(server, &root), observer(server).await);
    let request = |mode| {
        RequestOptions::new(name("a"), Terms::new(TTL).label("x"))
            .mode(mode)
            .start()
    };
    let (writer, _writers_control) = request(Mode::Exclusive);
    let writing = granted(happens("an answer to the acquire", one.acquire(&writer)).await);
    happens("the downgrade", writing.downgrade(TTL)).await.unwrap();
    let (reader, _control) = request(Mode::Shared);
    let reading = granted(happens("an answer to the acquire", one.acquire(&reader)).await);
    let entries: Vec<_> = one
        .status(&name("a"))
        .await
        .unwrap()
        .holders
        .into_iter()
        .filter_map(|holder| holder.id)
        .collect();
    for (entry, mark, hold) in [(&entries[0], "shared", &writing), (&entries[1], "entered", &reading)] {
        let marked = format!(" token={}", hold.token());
        let path = format!("{root}/a/{entry}");
        let data = happens("the holder sees the mark", async {
            loop {
                let (data, _, watcher) = client.get_and_watch_data(&path).await.unwrap();
                if data.ends_with(b"entered") {
                    watcher.changed().await;
                } else {
                    return data;
                }
            }
        });
        assert_eq!(data.await, [b"x\xFF", mark.as_bytes(), marked.as_bytes()].concat());
    }
    let holders = one.status(&name("a")).await.unwrap().holders;
    let shown: Vec<_> = holders.iter().map(|holder| (holder.token, holder.mode)).collect();
    assert_eq!(
        shown,
        [writing, reading].map(|hold| (Some(hold.token()), Some(Mode::Shared)))
    );
}

/// The node that keeps the minimum goes as well.
#[testbed::test]
async fn a_minimum_hold_that_is_revoked_leaves_the_name_free() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two) = (short_lived(server, &root), backend(server, &root));
    let with_minimum = || RequestOptions::new(name("a"), Terms::new(TTL).minimum(TTL)).start();
    let (request, _control) = with_minimum();
    let held = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let revoked = happens("the revocation", two.revoke(&name("a"), held.token(), Revoke::Now))
        .await
        .unwrap();
    assert_eq!(revoked, Revoked::done(None));
    assert_eq!(
        two.status(&name("a")).await.unwrap(),
        LockStatus::free().with_waiters([])
    );
    // Of a hold that was released, the minimum that is left is nobody's.
    let (request, _control) = with_minimum();
    let held = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let how = ReleaseOptions::default().keep_for(TTL);
    assert_eq!(
        happens("the release", held.release(how)).await.unwrap(),
        ReleaseOutcome::Released
    );
    let revoked = happens("the revocation", two.revoke(&name("a"), held.token(), Revoke::Now))
        .await
        .unwrap();
    assert_eq!(revoked, Revoked::NotHeld);
    assert!(two.status(&name("a")).await.unwrap().is_held());
}

/// Another library's node shows no token, and is left alone.
#[testbed::test]
async fn a_holder_without_a_token_is_not_revoked() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (held, _request, _control) = hold(&one, "a").await;
    held.release(ReleaseOptions::default()).await.unwrap();
    // Two, so that nobody can tell when the first came.
    for number in 1..=2 {
        let path = format!("{root}/a/lock-000000000{number}");
        create_in_directory(&client, &path, b"", CreateMode::Persistent).await;
    }
    // It waits for so long.
    let config = config(server.address(), &root).with_connect_timeout(std::time::Duration::from_secs(2));
    let two = backend_with(config);
    eventually("it waited for the token", async || {
        let refused = two.revoke(&name("a"), held.token(), Revoke::Now).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        refused.to_string().contains("has not shown its token")
    })
    .await;
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 2);
}
