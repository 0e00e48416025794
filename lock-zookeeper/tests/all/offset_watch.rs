//! The watch of the token offset, with which a grant does not read it.

use std::sync::{Arc, Mutex};

use lock_core::FencingToken;
use lock_core::backend::{Hold, ReleaseOptions};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::Server;
use tokio::task::JoinSet;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission};

use crate::support::line::Line;
use crate::support::*;

const FAR: u64 = 1 << 50;

fn offset(root: &str) -> String {
    format!("{root}/%token-offset")
}

async fn release(hold: &dyn Hold) {
    hold.release(ReleaseOptions::default()).await.unwrap();
}

async fn token(backend: &ZooKeeperBackend, lock: &str) -> u64 {
    let (hold, _request, _control) = hold(backend, lock).await;
    release(&*hold).await;
    hold.token().as_u64()
}

/// Has every later grant get a token above this.
async fn raise(backend: &ZooKeeperBackend, lock: &str, floor: u64) -> u64 {
    let (request, _control) = options(lock).token_above(FencingToken::new(floor).unwrap()).start();
    let hold = acquire(backend, &request).await;
    release(&*hold).await;
    assert!(hold.token().as_u64() > floor);
    hold.token().as_u64()
}

/// The number of sessions that watch the offset of this root path.
async fn watching(server: &Server, root: &str) -> usize {
    let answer = ask(server, "wchp").await;
    let sessions = answer.lines().skip_while(|line| *line != offset(root)).skip(1);
    sessions.take_while(|line| line.trim().starts_with("0x")).count()
}

/// Acquires until so many sessions watch the offset.
async fn watched(server: &Server, root: &str, backend: &ZooKeeperBackend, sessions: usize) {
    happens("the session watches the offset", async {
        while watching(server, root).await < sessions {
            token(backend, "other").await;
        }
    })
    .await;
    // Its answer may still be on its way.
    for _ in 0..2 {
        token(backend, "other").await;
    }
}

#[testbed::test]
async fn what_others_raise_is_seen_under_a_watch() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two) = (backend(server, &root), backend(server, &root));
    for round in 1..=5 {
        watched(server, &root, &one, 1).await;
        let raised = raise(&two, "a", round * FAR).await;
        assert!(token(&one, "a").await > raised, "round {round}");
    }
}

/// The raise comes while the session waits for the lock.
#[testbed::test]
async fn a_waiter_sees_what_was_raised_before_its_turn() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    watched(server, &root, &one, 1).await;
    let (held, _request, _control) = hold(&two, "a").await;
    let waiter = start_waiting(&one, (&client, &format!("{root}/a")), 2, waiting("a")).await;
    held.raise_token(FencingToken::new(FAR).unwrap()).await.unwrap();
    release(&*held).await;
    let (granted, _control) = happens("the grant", waiter).await.unwrap();
    assert!(granted.token().as_u64() > FAR);
    release(&*granted).await;
}

#[testbed::test]
async fn tokens_grow_while_sessions_watch_and_others_raise() {
    let (server, root) = (shared_server().await, fresh_root());
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut clients = JoinSet::new();
    for number in 0..3_u64 {
        let (backend, seen) = (backend(server, &root), seen.clone());
        clients.spawn(async move {
            for round in 0..40 {
                let hold = hold(&backend, "a").await.0;
                seen.lock().unwrap().push(hold.token().as_u64());
                // Seldom enough for a watch in between.
                if round % 10 == 3 * number {
                    let above = hold.token().as_u64() + 1000;
                    hold.raise_token(FencingToken::new(above).unwrap()).await.unwrap();
                    seen.lock().unwrap().push(above);
                }
                release(&*hold).await;
            }
        });
    }
    happens("all of them", clients.join_all()).await;
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 132 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[testbed::test]
async fn a_deleted_offset_is_restored_under_a_watch() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let raised = raise(&one, "a", FAR).await;
    watched(server, &root, &one, 1).await;
    client.delete(&offset(&root), None).await.unwrap();
    assert!(token(&one, "a").await > raised);
    assert!(token(&backend(server, &root), "a").await > raised);
}

/// The event of the watch is lost with the connection.
#[testbed::test]
async fn what_was_raised_while_the_connection_was_cut_is_seen() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, two) = (patient(&line.address, &root), backend(server, &root));
    let token_of_one = async || {
        let (request, _control) = long("a");
        let hold = acquire(&one, &request).await;
        release(&*hold).await;
        hold.token().as_u64()
    };
    happens("the session watches the offset", async {
        while watching(server, &root).await == 0 {
            token_of_one().await;
        }
    })
    .await;
    token_of_one().await;
    line.cut();
    let raised = raise(&two, "a", FAR).await;
    line.reset();
    line.heal();
    assert!(token_of_one().await > raised);
}

/// A watch would fire at each grant.
#[testbed::test]
async fn an_offset_that_each_grant_raises_is_not_watched() {
    let (server, root) = (shared_server().await, fresh_root());
    let one = backend(server, &root);
    for round in 1..=6 {
        raise(&one, "a", round * FAR).await;
        assert_eq!(watching(server, &root).await, 0, "round {round}");
    }
    watched(server, &root, &one, 1).await;
}

/// A server tells nothing of a node to clients that may not read it.
#[testbed::test]
async fn everybody_may_read_the_offset_and_its_owner_alone_may_write_it() {
    let (server, root) = (shared_server().await, fresh_root());
    let config = ZooKeeperConfig::new([server.address()]).with_root(&root);
    let closed = backend_with(
        config
            .with_user("app")
            .with_password("s3cret")
            .with_session_timeout(STEADY),
    );
    watched(server, &root, &closed, 1).await;
    let stranger: Client = observer(server).await;
    assert_eq!(stranger.get_data(&offset(&root)).await.unwrap().0, b"");
    happens("the ACLs are rewritten", closed.rewrite_acls()).await.unwrap();
    assert_eq!(stranger.get_data(&offset(&root)).await.unwrap().0, b"");
    let written = stranger.set_data(&offset(&root), b"7", None).await;
    assert!(matches!(written, Err(Error::NoAuth)), "{written:?}");
}

/// Without the node and without the permission to create it, nothing can be watched.
#[testbed::test]
async fn a_watch_that_was_refused_is_tried_again() {
    let (server, root) = (shared_server().await, fresh_root());
    let client: Client = observer(server).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(&format!("{root}/other"), &options).await.unwrap();
    let all_but_create = Permission::READ | Permission::WRITE | Permission::DELETE | Permission::ADMIN;
    let all_but_create = [Acl::new(all_but_create, AuthId::anyone())];
    client.set_acl(&root, &all_but_create, None).await.unwrap();
    let one = backend(server, &root);
    // Twice as many as a watch takes.
    for _ in 0..16 {
        token(&one, "other").await;
    }
    assert_eq!(client.check_stat(&offset(&root)).await.unwrap(), None);
    client.set_acl(&root, &Acls::anyone_all(), None).await.unwrap();
    watched(server, &root, &one, 1).await;
}
