//! The queue at the server: its order, who leaves it, and what waiters learn.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, ReleaseOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, CreateMode};

use crate::support::line::Line;
use crate::support::*;

#[testbed::test]
async fn a_try_is_busy_and_leaves_nothing() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (request, _control) = labelled("a", Some("worker 1 ✓")).start();
    let hold = granted(one.acquire(&request).await);
    let (other, _control) = trying("a");
    assert_eq!(busy(two.acquire(&other).await).holder.as_deref(), Some("worker 1 ✓"));
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    hold.release(ReleaseOptions::default()).await.unwrap();
    granted(two.acquire(&other).await);
}

#[testbed::test]
async fn waiters_are_served_in_order_with_growing_tokens() {
    let (server, root) = (shared_server().await, fresh_root());
    let client = observer(server).await;
    // Their sessions outlast any delay of a busy machine.
    let patient = || patient(server.address(), &root);
    let (request, _control) = long("a");
    let first = granted(happens("an answer to the acquire", patient().acquire(&request)).await);
    let mut tokens = vec![first.token()];
    let mut waiters = Vec::new();
    for count in 2..6 {
        let backend = patient();
        let (request, control) = long("a");
        let task = tokio::spawn({
            let request = request.clone();
            async move { (granted(backend.acquire(&request).await), backend, control) }
        });
        children_until(&client, &format!("{root}/a"), |children| children.len() == count).await;
        waiters.push((task, request));
    }
    let mut holding = first;
    for (task, request) in waiters {
        eventually("it knows that it waits", async || request.last_busy().is_some()).await;
        assert!(!task.is_finished());
        holding.release(ReleaseOptions::default()).await.unwrap();
        let (hold, _backend, _control) = happens("the task ends", task).await.unwrap();
        tokens.push(hold.token());
        assert!(is_live(request.lease()), "{:?}", request.lease().state());
        holding = hold;
        // The backend goes with its hold kept: the hold keeps what it needs.
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[testbed::test]
async fn a_waiter_that_is_given_up_leaves_the_queue() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (request, _control) = labelled("a", Some("holder")).start();
    let _hold = granted(one.acquire(&request).await);
    let (other, control) = waiting("a");
    let waiting = tokio::spawn({
        let (two, other) = (two.clone(), other.clone());
        async move { two.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    control.give_up();
    let answer = happens("the end of the wait", waiting).await.unwrap();
    if let Ok(answer) = &answer {
        assert!(matches!(answer, lock_core::backend::Attempt::Busy(_)), "{answer:?}");
    }
    children_until(&client, &format!("{root}/a"), |children| children.len() == 1).await;
    two.abandon(&other).await.unwrap();
}

/// Core undoes so many requests at a time, and leaves further ones.
#[testbed::test]
async fn a_grant_whose_caller_has_left_is_given_back_without_an_undo() {
    let (server, root) = (shared_server().await, fresh_root());
    let (line, client) = (Line::to(server.address()), observer(server).await);
    let far = patient(&line.address, &root);
    far.connect().await.unwrap();
    let (first, _control) = long("b");
    let _hold = granted(far.acquire(&first).await);
    line.set_round_trip(Duration::from_secs(2));
    let (request, control) = trying("a");
    let asking = tokio::spawn({
        let far = far.clone();
        async move { far.acquire(&request).await }
    });
    let directory = format!("{root}/a");
    children_until(&client, &directory, |children| !children.is_empty()).await;
    // The answer is on its way.
    drop(control);
    asking.abort();
    children_until(&client, &directory, <[String]>::is_empty).await;
}

/// The holder leaves after the waiter has listed the queue and before it has asked for the holder's label.
#[testbed::test]
async fn a_waiter_whose_holder_leaves_as_it_queues_learns_that_the_lock_is_taken() {
    // If the machine stands still, the next request comes before the holder leaves.
    in_some_run("its list or its next request is late", learns_that_it_is_taken).await;
}

async fn learns_that_it_is_taken() -> bool {
    const ROUND_TRIP: Duration = Duration::from_secs(2);
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let far = patient(&line.address, &root);
    far.connect().await.unwrap();
    let (first, ..) = hold(&one, "a").await;
    let (second, _control) = waiting("a");
    let queued = tokio::spawn({
        let second = second.clone();
        async move { granted(two.acquire(&second).await) }
    });
    let directory = format!("{root}/a");
    children_until(&client, &directory, |children| children.len() == 2).await;
    line.set_round_trip(ROUND_TRIP);
    let (lists, asked) = (line.answered_lists(), Instant::now());
    let (third, _control) = long("a");
    let waiting = tokio::spawn({
        let third = third.clone();
        async move { granted(far.acquire(&third).await) }
    });
    children_until(&client, &directory, |children| children.len() == 3).await;
    eventually("its list is answered", async || line.answered_lists() > lists).await;
    first.release(ReleaseOptions::default()).await.unwrap();
    // Its next request follows the answer, half a round trip after its list: it takes a whole one.
    let is_on_its_way = asked.elapsed() < ROUND_TRIP * 3 / 2;
    let second = happens("the grant", queued).await.unwrap();
    eventually("it knows that it waits", async || third.last_busy().is_some()).await;
    second.release(ReleaseOptions::default()).await.unwrap();
    happens("the grant", waiting).await.unwrap();
    is_on_its_way
}

#[testbed::test]
async fn a_stranger_in_the_queue_is_waited_for() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&backend, "a").await;
    first.release(ReleaseOptions::default()).await.unwrap();
    // As Curator's InterProcessMutex makes them.
    let path = format!("{root}/a/_c_5a1f0000-0000-0000-0000-000000000000-lock-");
    let sequence = create_in_directory(&client, &path, b"10.0.0.1", CreateMode::EphemeralSequential).await;
    let (request, _control) = trying("a");
    assert_eq!(
        busy(backend.acquire(&request).await).holder.as_deref(),
        Some("10.0.0.1")
    );
    client.delete(&format!("{path}{sequence}"), None).await.unwrap();
    let (request, _control) = trying("a");
    granted(backend.acquire(&request).await);
}

/// As all nodes have after the server's counter has reached its end. Which of both came first, nobody knows.
#[testbed::test]
async fn a_node_with_the_sequence_of_another_is_not_granted_and_says_what_to_do() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(&directory, &persistent).await.unwrap();
    // It counts as well, so that the next has the sequence 1.
    let stranger = format!("{directory}/lock-0000000001");
    client.create(&stranger, b"", &persistent).await.unwrap();
    let (request, _control) = trying("a");
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&directory), "{error}");
    assert_eq!(client.list_children(&directory).await.unwrap(), ["lock-0000000001"]);
    client.delete(&stranger, None).await.unwrap();
    let (request, _control) = trying("a");
    granted(backend.acquire(&request).await);
}

#[testbed::test]
async fn the_winner_brings_its_label_as_it_is_then() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&one, "a").await;
    let (other, control) = labelled("a", Some("before")).start();
    let waiting = tokio::spawn({
        let (two, other) = (two.clone(), other.clone());
        async move { granted(two.acquire(&other).await) }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    control.set_terms(Terms::new(TTL).label("after"));
    first.release(ReleaseOptions::default()).await.unwrap();
    let _hold = happens("the grant", waiting).await.unwrap();
    let status = one.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("after"));
}

#[testbed::test]
async fn status_tells_who_has_it_and_how_many_wait() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    assert_eq!(
        one.status(&name("a")).await.unwrap(),
        lock_core::backend::LockStatus::free().with_waiters([])
    );
    let label = "ü".repeat(127);
    let (request, _control) = labelled("a", Some(&label)).start();
    let hold = granted(one.acquire(&request).await);
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].token, Some(hold.token()));
    let (other, _control) = waiting("a");
    let waiting = tokio::spawn({
        let two = two.clone();
        async move { two.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some(&*label));
    // The server cannot know by which list it was granted, until the holder writes its token.
    assert!(status.holders[0].token.is_none_or(|token| token == hold.token()));
    assert_eq!(status.waiting, Some(1));
    waiting.abort();
}

/// It watches the waiter before it, and not the holder.
#[testbed::test]
async fn a_waiter_behind_others_names_the_holder_of_its_last_moment() {
    // If the machine stands still, its last moment is over before the next one is granted.
    in_some_run("it names another holder", names_the_last_holder).await;
}

async fn names_the_last_holder() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let queue = async |length| children_until(&client, &format!("{root}/a"), |children| children.len() == length).await;
    let (request, _control) = labelled("a", Some("first")).start();
    let first = granted(one.acquire(&request).await);
    let (request, _control) = labelled("a", Some("second")).start();
    let second = tokio::spawn({
        let (one, request) = (one.clone(), request.clone());
        async move { granted(one.acquire(&request).await) }
    });
    queue(2).await;
    let (request, _control) = labelled("a", Some("third")).start();
    let _third = tokio::spawn({
        let (one, request) = (one.clone(), request.clone());
        async move { one.acquire(&request).await }
    });
    queue(3).await;
    let terms = Terms::new(TTL).time_left(Duration::from_secs(7));
    let (request, _control) = RequestOptions::new(name("a"), terms).start();
    let last = tokio::spawn({
        let (one, request) = (one.clone(), request.clone());
        async move { one.acquire(&request).await }
    });
    queue(4).await;
    eventually("it knows that it waits", async || request.last_busy().is_some()).await;
    assert_eq!(request.last_busy().unwrap().holder.as_deref(), Some("first"));
    first.release(ReleaseOptions::default()).await.unwrap();
    let _second = happens("the grant", second).await.unwrap();
    let last = busy(happens("the end of the wait", last).await.unwrap());
    println!("{last:?}");
    last.holder.as_deref() == Some("second")
}

/// Each hold watches its node once, and writes its token once. The heartbeats are the session's, however many it holds.
#[testbed::test]
async fn held_names_cost_hardly_any_request() {
    const NAMES: usize = 1000;
    let (server, root) = (own_server().await, fresh_root());
    let one = backend(&server, &root);
    let mut holds = Vec::new();
    for number in 0..NAMES {
        holds.push(hold(&one, &number.to_string()).await);
    }
    let before = requests(&server).await;
    // That is after a twelfth of the session timeout.
    sleep(SESSION).await;
    eventually("all wait", async || {
        counter(&server, "zk_watch_count").await >= NAMES as u64
    })
    .await;
    let watching = requests(&server).await;
    sleep(2 * SESSION).await;
    let later = requests(&server).await;
    // At most twelve heartbeats, and as many pings, in a session timeout.
    assert!(watching - before <= 2 * NAMES + 100, "{} requests", watching - before);
    assert!(later - watching <= 150, "{} requests", later - watching);
    assert!(holds.iter().all(|(_, request, _)| is_live(request.lease())));
}

/// How many packets the server has received, as its `mntr` says.
async fn requests(server: &testbed::Server) -> usize {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"mntr").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let received = answer
        .lines()
        .find_map(|line| line.strip_prefix("zk_packets_received\t"));
    received.expect("mntr counts packets").parse().unwrap()
}
