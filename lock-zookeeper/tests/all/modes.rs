//! Readers, permits and downgrades: their nodes, and what the queue does between two requests.

use std::sync::Arc;
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, DistributedLock, Hold, Lease, Mode, Permits, ReleaseOptions, Renewal};
use lock_zookeeper::ZooKeeperBackend;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zookeeper_client::{Client, CreateMode};

use crate::support::line::Line;
use crate::support::*;

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits(Permits::new(take, of).unwrap())
}

fn request(mode: Mode) -> (AcquireRequest, RequestControl) {
    options("a").mode(mode).start()
}

fn try_request(mode: Mode) -> (AcquireRequest, RequestControl) {
    options("a").mode(mode).waits(false).start()
}

async fn hold_in(backend: &ZooKeeperBackend, mode: Mode) -> (Arc<dyn Hold>, RequestControl) {
    let (request, control) = request(mode);
    (
        granted(happens("an answer to the acquire", backend.acquire(&request)).await),
        control,
    )
}

async fn is_refused(backend: &ZooKeeperBackend, mode: Mode) {
    let (request, _control) = try_request(mode);
    busy(happens("an answer to the acquire", backend.acquire(&request)).await);
}

type Waiting = (JoinHandle<Arc<dyn Hold>>, AcquireRequest, RequestControl);

/// Waits in this mode, behind `queued` others.
async fn wait_in(backend: &ZooKeeperBackend, mode: Mode, (client, root): (&Client, &str), queued: usize) -> Waiting {
    let (request, control) = request(mode);
    let task = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { granted(backend.acquire(&request).await) }
    });
    children_until(client, &format!("{root}/a"), |children| children.len() == queued + 1).await;
    (task, request, control)
}

async fn until_busy(request: &AcquireRequest) {
    eventually("it knows that it waits", async || request.last_busy().is_some()).await;
}

async fn release(hold: &dyn Hold) {
    hold.release(ReleaseOptions::default()).await.unwrap();
}

async fn downgrade(hold: &dyn Hold) {
    let renewed = happens("the downgrade", hold.downgrade(TTL)).await.unwrap();
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
}

/// As an older version and Curator make them.
async fn plain_node(client: &Client, root: &str, data: &[u8]) -> String {
    let path = format!("{root}/a/_c_5a1f0000-0000-0000-0000-000000000000-lock-");
    let sequence = create_in_directory(client, &path, data, CreateMode::EphemeralSequential).await;
    format!("{path}{sequence}")
}

#[testbed::test]
async fn a_nodes_name_says_how_it_asks() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    for (mode, how) in [
        (Mode::Exclusive, "-lock-"),
        (Mode::Shared, "-read-lock-"),
        (permits(2, 10), "-p2.10-lock-"),
    ] {
        let (hold, _control) = hold_in(&backend, mode).await;
        let children = client.list_children(&format!("{root}/a")).await.unwrap();
        let [name] = children.as_slice() else {
            panic!("{children:?}");
        };
        // `_c_` and the request's id.
        assert_eq!(&name[39..name.len() - 10], how, "{name}");
        release(&*hold).await;
    }
}

#[testbed::test]
async fn a_mode_that_is_not_declared_is_refused() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (request, _control) = try_request(Mode::Upgradable);
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    children_until(&client, &root, <[String]>::is_empty).await;
}

/// Nodes of an older version, and of Curator, say nothing of modes. They wait for all nodes before them.
#[testbed::test]
async fn plain_nodes_count_as_writers() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (reader, _control) = hold_in(&one, Mode::Shared).await;
    let stranger = plain_node(&client, &root, b"10.0.0.1").await;
    // It waits, so nobody passes it.
    is_refused(&one, Mode::Shared).await;
    release(&*reader).await;
    for mode in [Mode::Shared, Mode::Exclusive, permits(1, 9)] {
        is_refused(&one, mode).await;
    }
    let status = one.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("10.0.0.1"));
    assert_eq!(
        (status.holders.len(), status.holders[0].mode),
        (1, Some(Mode::Exclusive))
    );
    let (waiting, waits, _control) = wait_in(&one, Mode::Shared, (&client, &root), 1).await;
    until_busy(&waits).await;
    client.delete(&stranger, None).await.unwrap();
    release(&*happens("the grant", waiting).await.unwrap()).await;
}

/// Only whole marks of ours count: what another program writes into its node is a label.
#[testbed::test]
async fn a_strangers_data_is_no_mark() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    release(&*hold_in(&one, Mode::Shared).await.0).await;
    for data in [&b"shared"[..], b"\xFF", b"\xFFshared\n"] {
        let stranger = plain_node(&client, &root, data).await;
        is_refused(&one, Mode::Shared).await;
        client.delete(&stranger, None).await.unwrap();
    }
}

/// The writer's list shows the reader's node, so that both tokens could be based on its creation.
#[testbed::test]
async fn a_reader_beside_a_downgraded_hold_has_a_token_of_its_own() {
    const ROUND_TRIP: Duration = Duration::from_secs(2);
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let far = patient(&line.address, &root);
    let (first, _control) = hold_in(&one, Mode::Exclusive).await;
    let (request, _control) = long("a");
    let writing = tokio::spawn({
        let (far, request) = (far.clone(), request.clone());
        async move { granted(far.acquire(&request).await) }
    });
    until_busy(&request).await;
    line.set_round_trip(ROUND_TRIP);
    release(&*first).await;
    // Before the writer has heard of that.
    let (reading, reads, _control) = wait_in(&two, Mode::Shared, (&client, &root), 1).await;
    until_busy(&reads).await;
    let writer = happens("the grant", writing).await.unwrap();
    line.set_round_trip(Duration::ZERO);
    downgrade(&*writer).await;
    let reader = happens("the grant", reading).await.unwrap();
    assert!(
        reader.token() > writer.token(),
        "{} after {}",
        reader.token(),
        writer.token()
    );
    is_refused(&one, Mode::Exclusive).await;
    release(&*writer).await;
    release(&*reader).await;
    let (next, _control) = hold_in(&one, Mode::Exclusive).await;
    assert!(next.token() > reader.token());
}

/// The writer was second in the reader's list, and was granted the lock and downgraded before the reader watched it.
#[testbed::test]
async fn a_downgrade_between_a_readers_list_and_its_watch_is_noticed() {
    // If the machine stands still, the reader watches the writer before the downgrade.
    in_some_run("the reader's list or its watch is late", notices_a_downgrade).await;
}

async fn notices_a_downgrade() -> bool {
    const ROUND_TRIP: Duration = Duration::from_secs(3);
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let far = patient(&line.address, &root);
    far.connect().await.unwrap();
    let (first, _control) = hold_in(&one, Mode::Exclusive).await;
    let (writing, writes, _control) = wait_in(&two, Mode::Exclusive, (&client, &root), 1).await;
    until_busy(&writes).await;
    line.set_round_trip(ROUND_TRIP);
    let (lists, asked) = (line.answered_lists(), Instant::now());
    let (request, _control) = long_in(Mode::Shared);
    let reading = tokio::spawn({
        let (far, request) = (far.clone(), request.clone());
        async move { granted(far.acquire(&request).await) }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 3).await;
    eventually("its list is answered", async || line.answered_lists() > lists).await;
    release(&*first).await;
    let writer = happens("the grant", writing).await.unwrap();
    downgrade(&*writer).await;
    // Its watch follows the answer, half a round trip after its list: it takes a whole one.
    let is_on_its_way = asked.elapsed() < ROUND_TRIP * 3 / 2;
    line.set_round_trip(Duration::ZERO);
    let reader = happens("the grant", reading).await.unwrap();
    assert!(reader.token() > writer.token());
    for hold in [writer, reader] {
        release(&*hold).await;
    }
    is_on_its_way
}

fn long_in(mode: Mode) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name("a"), Terms::new(2 * LONG)).mode(mode).start()
}

/// Those that are further behind watch others that wait, and not the holder.
#[testbed::test]
async fn many_waiters_enter_as_permits_come_back() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (first, _control) = hold_in(&one, permits(4, 4)).await;
    let mut waiting = Vec::new();
    for queued in 1..=6 {
        let waiter = wait_in(&one, permits(1, 4), (&client, &root), queued).await;
        until_busy(&waiter.1).await;
        waiting.push(waiter);
    }
    release(&*first).await;
    let mut holds = Vec::new();
    let last = waiting.split_off(4);
    for (task, ..) in waiting {
        holds.push(happens("the task ends", task).await.unwrap());
    }
    assert!(last.iter().all(|(task, ..)| !task.is_finished()));
    assert_eq!(one.status(&name("a")).await.unwrap().waiting, Some(2));
    let mut tokens: Vec<_> = holds.iter().map(|hold| hold.token()).collect();
    tokens.sort();
    tokens.dedup();
    assert!(tokens.len() == 4 && tokens[0] > first.token(), "{tokens:?}");
    for (hold, (task, ..)) in holds.iter().zip(last) {
        release(&**hold).await;
        release(&*happens("the task ends", task).await.unwrap()).await;
    }
}

#[testbed::test]
async fn the_status_shows_all_holders() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (request, _control) = labelled("a", Some("writer")).start();
    let writer = granted(one.acquire(&request).await);
    let (reading, _reads, _reader) = wait_in(&two, Mode::Shared, (&client, &root), 1).await;
    let (_writing, _writes, _writer) = wait_in(&two, Mode::Exclusive, (&client, &root), 2).await;
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!((status.holders.len(), status.waiting), (1, Some(2)));
    assert_eq!(status.holders[0].mode, Some(Mode::Exclusive));
    downgrade(&*writer).await;
    let reader = happens("the grant", reading).await.unwrap();
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!((status.holders.len(), status.waiting), (2, Some(1)));
    let shown = |index: usize| {
        let holder = &status.holders[index];
        (holder.label.as_deref(), holder.mode, holder.token)
    };
    assert_eq!(shown(0), (Some("writer"), Some(Mode::Shared), Some(writer.token())));
    assert_eq!(shown(1), (None, Some(Mode::Shared), Some(reader.token())));
}

/// The status shows the token of the guard of that moment.
#[testbed::test]
async fn a_hold_that_was_passed_on_keeps_its_token_in_a_downgrade() {
    let (server, root) = (shared_server().await, fresh_root());
    let one = backend(server, &root);
    let (request, _control) = options("a").reserve(4).start();
    let first = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let passed = first.pass(&Lease::new(name("a"))).unwrap();
    assert!(passed.token() > first.token());
    drop(first);
    downgrade(&*passed).await;
    let status = one.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].token, Some(passed.token()));
    let (reader, _control) = hold_in(&one, Mode::Shared).await;
    assert!(reader.token() > passed.token());
}
