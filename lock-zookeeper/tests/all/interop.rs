//! Locks that other clients and we share: Curator's `InterProcessMutex` and kazoo's `Lock`.

use std::process::{Command, Stdio};
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, ReleaseOptions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, CreateMode};

use crate::support::*;

/// Much longer than a round trip.
const SHORT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy)]
enum Kind {
    Curator,
    Kazoo,
}

impl Kind {
    /// `None` where there is none and need not be.
    fn command(self) -> Option<Command> {
        match self {
            Self::Curator => {
                let mut java = testbed::skip_left_out(testbed::curator())?;
                java.arg("CuratorLock");
                Some(java)
            }
            Self::Kazoo => {
                let mut python = testbed::skip_left_out(testbed::kazoo())?;
                python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/interop/kazoo_lock.py"));
                Some(python)
            }
        }
    }
}

/// A process with another client, which ends with this value.
struct Peer {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(kind: Kind, address: &str) -> Option<Self> {
        let mut command = kind.command()?;
        command.arg(address);
        let mut process = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let input = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        Some(Self {
            _process: process,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    async fn tell(&mut self, command: &str) {
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.expect("it listens");
    }

    async fn answer(&mut self) -> String {
        let line = happens("another line", self.output.next_line()).await;
        line.expect("it is text").expect("it goes on")
    }

    async fn ask(&mut self, command: &str) -> String {
        self.tell(command).await;
        self.answer().await
    }

    async fn is_silent(&mut self) -> bool {
        timeout(SHORT, self.output.next_line()).await.is_err()
    }
}

/// The queue is ours, theirs, ours, theirs: each gets the lock when the one before it has released it, and not before.
async fn both_wait_in_one_queue(kind: Kind) {
    let (server, root) = (shared_server().await, fresh_root());
    let path = format!("{root}/a");
    let (Some(mut second), Some(mut fourth)) =
        (Peer::start(kind, server.address()), Peer::start(kind, server.address()))
    else {
        return;
    };
    let (one, three) = (patient(server.address(), &root), patient(server.address(), &root));
    let client = observer(server).await;
    let (request, _control) = long("a");
    let first = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    assert_eq!(second.ask(&format!("try {path}")).await, "false");
    children_until(&client, &path, |children| children.len() == 1).await;

    second.tell(&format!("wait {path}")).await;
    children_until(&client, &path, |children| children.len() == 2).await;
    let (request, _control) = long("a");
    let mut third = tokio::spawn({
        let three = three.clone();
        async move { granted(three.acquire(&request).await) }
    });
    children_until(&client, &path, |children| children.len() == 3).await;
    fourth.tell(&format!("wait {path}")).await;
    children_until(&client, &path, |children| children.len() == 4).await;
    assert_eq!(one.status(&name("a")).await.unwrap().waiting, Some(3));

    assert!(second.is_silent().await, "two hold it");
    happens("the release", first.release(ReleaseOptions::default()))
        .await
        .unwrap();
    assert_eq!(second.answer().await, "true");
    let at_once = RequestOptions::new(name("a"), Terms::new(2 * LONG)).waits(false);
    let (other, _control) = at_once.start();
    busy(happens("an answer to the acquire", one.acquire(&other)).await);
    assert!(timeout(SHORT, &mut third).await.is_err(), "two hold it");
    assert_eq!(second.ask(&format!("drop {path}")).await, "released");
    let third = happens("the grant", third).await.unwrap();
    assert!(third.token() > first.token());

    assert!(fourth.is_silent().await, "two hold it");
    happens("the release", third.release(ReleaseOptions::default()))
        .await
        .unwrap();
    assert_eq!(fourth.answer().await, "true");
    assert_eq!(fourth.ask(&format!("drop {path}")).await, "released");
}

async fn no_update_is_lost(kind: Kind) {
    const TIMES: u32 = 100;
    let (server, root) = (shared_server().await, fresh_root());
    let Some(mut peer) = Peer::start(kind, server.address()) else {
        return;
    };
    let backend = patient(server.address(), &root);
    backend.connect().await.unwrap();
    let (client, counter) = (observer(server).await, format!("{root}/counter"));
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create(&counter, b"0", &persistent).await.unwrap();
    let value = async || {
        let (data, _) = client.get_data(&counter).await.unwrap();
        String::from_utf8(data).unwrap().parse::<u32>().unwrap()
    };
    peer.tell(&format!("add {counter} {root}/a {TIMES}")).await;
    // Both are at it at the same time.
    eventually("kazoo counts", async || value().await != 0).await;
    for _ in 0..TIMES {
        let (request, _control) = long("a");
        let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
        let value = value().await;
        tokio::task::yield_now().await;
        let data = (value + 1).to_string();
        client.set_data(&counter, data.as_bytes(), None).await.unwrap();
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
    }
    assert_eq!(peer.answer().await, "done");
    assert_eq!(value().await, 2 * TIMES);
}

/// A kept node is an entry before theirs, which the process that made it deletes when its time is over.
async fn a_minimum_hold_is_waited_for(kind: Kind) {
    const MINIMUM: Duration = Duration::from_millis(1500);
    let (server, root) = (shared_server().await, fresh_root());
    let path = format!("{root}/a");
    let Some(mut peer) = Peer::start(kind, server.address()) else {
        return;
    };
    let (backend, client) = (patient(server.address(), &root), observer(server).await);
    let terms = Terms::new(2 * LONG).minimum(2 * LONG);
    let (request, _control) = RequestOptions::new(name("a"), terms).start();
    let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    // It connects before the time begins.
    assert_eq!(peer.ask(&format!("try {path}")).await, "false");
    children_until(&client, &path, |children| children.len() == 2).await;
    let released = Instant::now();
    let release = hold.release(ReleaseOptions::default().keep_for(MINIMUM));
    happens("the release", release).await.unwrap();
    assert_eq!(peer.ask(&format!("wait {path}")).await, "true");
    assert!(released.elapsed() >= MINIMUM, "granted after {:?}", released.elapsed());
    assert_eq!(client.list_children(&path).await.unwrap().len(), 1);
    assert_eq!(peer.ask(&format!("drop {path}")).await, "released");
}

#[testbed::test]
async fn curator_waits_for_a_minimum_hold() {
    a_minimum_hold_is_waited_for(Kind::Curator).await;
}

#[testbed::test]
async fn kazoo_waits_for_a_minimum_hold() {
    a_minimum_hold_is_waited_for(Kind::Kazoo).await;
}

#[testbed::test]
async fn curator_and_we_wait_in_one_queue() {
    both_wait_in_one_queue(Kind::Curator).await;
}

#[testbed::test]
async fn kazoo_and_we_wait_in_one_queue() {
    both_wait_in_one_queue(Kind::Kazoo).await;
}

#[testbed::test]
async fn no_update_is_lost_between_curator_and_us() {
    no_update_is_lost(Kind::Curator).await;
}

#[testbed::test]
async fn no_update_is_lost_between_kazoo_and_us() {
    no_update_is_lost(Kind::Kazoo).await;
}
