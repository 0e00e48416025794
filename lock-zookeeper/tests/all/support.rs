//! What the tests share: servers, requests, and a second client that looks at the server's nodes.
pub(crate) mod known;
pub(crate) mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, Busy, DistributedLock, Hold, Lease};
use lock_core::{HoldState, LockName, Result};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Server, ZooKeeper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, CreateSequence};

pub(crate) use testbed::{eventually, happens, in_some_run};

/// A session timeout for which a test waits: the server's ticks are 500 ms.
pub(crate) const SESSION: Duration = Duration::from_secs(4);
/// One for which no test waits. It outlasts the moments for which a busy machine stands still.
pub(crate) const STEADY: Duration = Duration::from_secs(15);
/// Longer than any session timeout here. What ends a hold is its session.
pub(crate) const TTL: Duration = Duration::from_secs(100);
/// A session timeout for which no test waits: it outlasts all outages and `AT_MOST`, so what is free before was freed
/// by somebody. The servers allow no longer one.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A timeout of a client that is not to be reached, and yet to end a wait.
pub(crate) const GENEROUS: Duration = Duration::from_secs(30);

/// One server for all tests that leave it alone.
pub(crate) async fn shared_server() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_init(own_server).await
}

pub(crate) async fn own_server() -> Server {
    ZooKeeper::new().start().await.unwrap()
}

/// A root path of one's own.
pub(crate) fn fresh_root() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("/test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn config(address: &str, root: &str) -> ZooKeeperConfig {
    ZooKeeperConfig::new([address])
        .with_open_acl()
        .with_root(root)
        .with_session_timeout(SESSION)
        .with_connect_timeout(GENEROUS)
}

pub(crate) fn backend(server: &Server, root: &str) -> ZooKeeperBackend {
    backend_with(config(server.address(), root).with_session_timeout(STEADY))
}

/// Its sessions end soon after they fall silent.
pub(crate) fn short_lived(server: &Server, root: &str) -> ZooKeeperBackend {
    backend_with(config(server.address(), root))
}

/// Its session outlasts whatever happens to its server.
pub(crate) fn patient(address: &str, root: &str) -> ZooKeeperBackend {
    backend_with(config(address, root).with_session_timeout(LONG))
}

pub(crate) fn backend_with(config: ZooKeeperConfig) -> ZooKeeperBackend {
    ZooKeeperBackend::new(config).unwrap()
}

pub(crate) async fn observer(server: &Server) -> Client {
    Client::connector()
        .with_session_timeout(GENEROUS)
        .connect(server.address())
        .await
        .unwrap()
}

/// What a server answers to a four-letter word. It may hang up instead while it joins another leader.
pub(crate) async fn ask(server: &Server, word: &str) -> String {
    let asked = async || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(server.address()).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    happens("the server answers", async {
        loop {
            match asked().await {
                Ok(answer) if !answer.is_empty() => return answer,
                _ => sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn options(lock: &str) -> RequestOptions {
    labelled(lock, None)
}

pub(crate) fn labelled(lock: &str, label: Option<&str>) -> RequestOptions {
    let mut terms = Terms::new(TTL);
    if let Some(label) = label {
        terms = terms.label(label);
    }
    RequestOptions::new(name(lock), terms)
}

/// A request that waits for ever, and its control.
pub(crate) fn waiting(lock: &str) -> (AcquireRequest, RequestControl) {
    options(lock).start()
}

/// The same on a session of [`LONG`].
pub(crate) fn long(lock: &str) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name(lock), Terms::new(2 * LONG)).start()
}

pub(crate) fn trying(lock: &str) -> (AcquireRequest, RequestControl) {
    options(lock).waits(false).start()
}

pub(crate) fn granted(attempt: Result<Attempt>) -> Arc<dyn Hold> {
    match attempt.unwrap() {
        Attempt::Granted(hold, _armed) => hold,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn busy(attempt: Result<Attempt>) -> Busy {
    match attempt.unwrap() {
        Attempt::Busy(busy) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// Acquires at once, and keeps the control with the hold.
pub(crate) async fn hold(backend: &ZooKeeperBackend, lock: &str) -> (Arc<dyn Hold>, AcquireRequest, RequestControl) {
    let (request, control) = waiting(lock);
    let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    (hold, request, control)
}

/// Acquires as core does: again and again while that may help.
pub(crate) async fn acquire(backend: &ZooKeeperBackend, request: &AcquireRequest) -> Arc<dyn Hold> {
    happens("a grant", async {
        loop {
            match backend.acquire(request).await {
                Err(error) if error.is_retryable() => sleep(Duration::from_millis(50)).await,
                attempt => return granted(attempt),
            }
        }
    })
    .await
}

/// Whether the process may still believe in it: on a busy machine it may be suspect for a moment.
pub(crate) fn is_live(lease: &Lease) -> bool {
    matches!(lease.state(), HoldState::Held | HoldState::Suspect)
}

/// Asks the server again and again until `check` likes the children of `path`; a missing node has none.
pub(crate) async fn children_until(client: &Client, path: &str, check: impl Fn(&[String]) -> bool) -> Vec<String> {
    happens("the children are so", async {
        loop {
            let children = match client.list_children(path).await {
                Err(zookeeper_client::Error::NoNode) => Vec::new(),
                // As at an election. The client connects again.
                Err(zookeeper_client::Error::ConnectionLoss) => {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
                children => children.unwrap(),
            };
            if check(&children) {
                return children;
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// The children of `path` at this moment. The server deletes a lock's directory without children once a minute.
pub(crate) async fn children_of(client: &Client, path: &str) -> Vec<String> {
    children_until(client, path, |_| true).await
}

/// Creates a node in a lock's directory. The server deletes a directory without children once a minute: then the directory is created
/// again, and the node after it.
pub(crate) async fn create_in_directory(client: &Client, path: &str, data: &[u8], mode: CreateMode) -> CreateSequence {
    let (directory, _) = path.rsplit_once('/').expect("a path in a directory");
    let (options, container) = (
        mode.with_acls(Acls::anyone_all()),
        CreateMode::Container.with_acls(Acls::anyone_all()),
    );
    happens("the node is created", async {
        loop {
            match client.create(path, data, &options).await {
                Err(zookeeper_client::Error::NoNode) => match client.create(directory, b"", &container).await {
                    Ok(_) | Err(zookeeper_client::Error::NodeExists) => {}
                    Err(error) => panic!("{directory}: {error}"),
                },
                created => break created.unwrap().1,
            }
        }
    })
    .await
}

/// Deletes a directory without children, unless the server did.
pub(crate) async fn delete_directory(client: &Client, path: &str) {
    match client.delete(path, None).await {
        Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Waits until the only holder has written its token into its node: after that, a hold writes nothing.
pub(crate) async fn token_is_written(client: &Client, directory: &str) {
    let children = client.list_children(directory).await.unwrap();
    let path = format!("{directory}/{}", children[0]);
    happens("the token is written", async {
        loop {
            let (data, _, watcher) = client.get_and_watch_data(&path).await.unwrap();
            if String::from_utf8_lossy(&data).contains("token=") {
                return;
            }
            watcher.changed().await;
        }
    })
    .await;
}

/// Starts to wait, and returns when the server has so many nodes for the lock.
pub(crate) async fn start_waiting(
    backend: &ZooKeeperBackend,
    (client, path): (&Client, &str),
    nodes: usize,
    (request, control): (AcquireRequest, RequestControl),
) -> JoinHandle<(Arc<dyn Hold>, RequestControl)> {
    let backend = backend.clone();
    let waiting = tokio::spawn(async move { (granted(backend.acquire(&request).await), control) });
    children_until(client, path, |children| children.len() == nodes).await;
    waiting
}

/// One number of the server's `mntr`.
pub(crate) async fn counter(server: &Server, name: &str) -> u64 {
    let answer = ask(server, "mntr").await;
    let value = answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    let value = value.unwrap_or_else(|| panic!("{name} is not in {answer}"));
    value.parse().unwrap()
}
