//! Runtimes that end, or that nobody drives.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_core::{Error, ErrorKind, HoldState, LostCause};
use lock_zookeeper::ZooKeeperBackend;
use testbed::steady::blocking::receives;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::{sleep, timeout};

use crate::support::*;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime that is driven until somebody stops that.
struct Driven {
    handle: tokio::runtime::Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Runtime>,
}

impl Driven {
    fn start() -> Self {
        let runtime = current_thread();
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime
        });
        Self { handle, stop, thread }
    }

    /// It lives on, and nothing on it goes on.
    fn stop(self) -> Runtime {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}

async fn abandon(backend: &ZooKeeperBackend, request: &AcquireRequest) {
    eventually("it is abandoned", async || backend.abandon(request).await).await;
}

/// Its session runs on the first runtime, by a request that left nothing.
async fn connect_on(runtime: &Driven, backend: &ZooKeeperBackend) {
    let backend = backend.clone();
    runtime
        .handle
        .spawn(async move { backend.connect().await.unwrap() })
        .await
        .unwrap();
}

#[testbed::test]
async fn a_session_on_a_runtime_that_nobody_drives_is_replaced() {
    in_some_run("the old session was not ended", is_replaced).await;
}

/// If the machine stands still, the first runtime counts as one that nobody drives before it is stopped.
async fn is_replaced() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let first = Driven::start();
    let backend = patient(server.address(), &root);
    connect_on(&first, &backend).await;
    let (request, _control) = long("a");
    let _hold = acquire(&backend, &request).await;
    let idle = first.stop();
    let (other, _control) = long("b");
    let _other = acquire(&backend, &other).await;
    // The old session was ended: its holds are lost, and their names free.
    if !matches!(request.lease().state(), HoldState::Lost(_)) {
        idle.shutdown_background();
        return false;
    }
    let (again, _control) = long("a");
    let _again = acquire(&backend, &again).await;
    // Should the old runtime go on, nothing of the old session comes back.
    let idle = std::thread::spawn(move || {
        idle.block_on(async { sleep(Duration::from_secs(1)).await });
        idle
    });
    tokio::task::spawn_blocking(|| idle.join().unwrap())
        .await
        .unwrap()
        .shutdown_background();
    assert!(is_live(again.lease()) && is_live(other.lease()));
    let client = observer(server).await;
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    true
}

#[testbed::test]
async fn a_place_that_nobody_drives_is_taken_anew() {
    let (server, root) = (shared_server().await, fresh_root());
    let (holder, backend) = (patient(server.address(), &root), patient(server.address(), &root));
    let (first, _control) = long("a");
    let hold = acquire(&holder, &first).await;
    let runtime = Driven::start();
    connect_on(&runtime, &backend).await;
    let (request, _control) = long("a");
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { acquire(&backend, &request).await }
    });
    let client = observer(server).await;
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    let idle = runtime.stop();
    hold.release(ReleaseOptions::default()).await.unwrap();
    let next = happens("the grant", waiting).await.unwrap();
    assert!(next.token() > hold.token());
    assert!(is_live(request.lease()), "{:?}", request.lease().state());
    idle.shutdown_background();
}

#[testbed::test]
async fn what_nobody_drives_can_be_released_and_abandoned() {
    in_some_run("the hold was released on another runtime", is_given_back).await;
}

/// If the machine stands still, the runtime counts as one that nobody drives before it is stopped.
async fn is_given_back() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let (stranger, backend) = (patient(server.address(), &root), patient(server.address(), &root));
    let runtime = Driven::start();
    connect_on(&runtime, &backend).await;
    let (first, _control) = long("a");
    let hold = acquire(&backend, &first).await;
    let (second, _control) = long("b");
    let _held = acquire(&backend, &second).await;
    let (third, _control) = long("c");
    let _taken = acquire(&stranger, &third).await;
    let (queued, _control) = long("c");
    let waiting = tokio::spawn({
        let (backend, queued) = (backend.clone(), queued.clone());
        async move { backend.acquire(&queued).await.is_err() }
    });
    let client = observer(server).await;
    children_until(&client, &format!("{root}/c"), |children| children.len() == 2).await;
    let idle = runtime.stop();
    let outcome = happens("the release", hold.release(ReleaseOptions::default())).await;
    if outcome.unwrap() == ReleaseOutcome::Released {
        idle.shutdown_background();
        return false;
    }
    abandon(&backend, &second).await;
    abandon(&backend, &queued).await;
    assert!(happens("the grant", waiting).await.unwrap());
    for lock in ["a", "b"] {
        let (request, _control) = long(lock);
        acquire(&stranger, &request)
            .await
            .release(ReleaseOptions::default())
            .await
            .unwrap();
    }
    children_until(&client, &format!("{root}/c"), |children| children.len() == 1).await;
    idle.shutdown_background();
    true
}

/// A poll that a runtime's end does not interrupt, as core polls releases.
#[testbed::test]
fn a_poll_while_the_runtime_ends_returns() {
    let server = current_thread().block_on(own_server());
    type Ask = fn(ZooKeeperBackend) -> std::pin::Pin<Box<dyn Future<Output = Option<Error>> + Send>>;
    let connect: Ask = |backend| Box::pin(async move { backend.connect().await.err() });
    let acquire: Ask = |backend| Box::pin(async move { backend.acquire(&trying("a").0).await.err() });
    let status: Ask = |backend| Box::pin(async move { backend.status(&name("a")).await.err() });
    for ask in [connect, acquire, status] {
        for is_connected in [false, true] {
            let backend = backend(&server, "/test");
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            if is_connected {
                runtime.block_on(backend.connect()).unwrap();
            }
            let (report_start, started) = mpsc::channel();
            let (report, polled) = mpsc::channel();
            runtime.spawn(async move {
                let _ = report_start.send(());
                while !tokio::spawn(pending::<()>()).is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let mut asked = pin!(unconstrained(ask(backend)));
                let answer = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                let _ = report.send(answer);
            });
            started.recv().unwrap();
            runtime.shutdown_background();
            let answer = receives("the answer to one poll, unless it spins", &polled);
            if !is_connected {
                let Poll::Ready(Some(error)) = answer else {
                    panic!("a task that was refused is an error at once: {answer:?}");
                };
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("shutting down"), "{error}");
            }
        }
    }
}

#[testbed::test]
fn a_backend_outlives_its_runtime() {
    let (one, two) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = two.block_on(own_server());
    let backend = backend(&server, "/test");
    let (hold, request, _control) = one.block_on(hold(&backend, "a"));
    let (queued, _queued_control) = waiting("a");
    let task = one.spawn({
        let (backend, queued) = (backend.clone(), queued.clone());
        async move { backend.acquire(&queued).await.is_ok() }
    });
    let client = two.block_on(observer(&server));
    two.block_on(children_until(&client, "/test/a", |children| children.len() == 2));
    drop(one);
    two.block_on(async {
        happens("the task ends", task).await.unwrap_err();
        let HoldState::Lost(lost) = request.lease().state() else {
            panic!("{:?}", request.lease().state())
        };
        assert_eq!(lost.cause(), LostCause::Disconnected);
        assert_eq!(
            happens("the release", hold.release(ReleaseOptions::default()))
                .await
                .unwrap(),
            ReleaseOutcome::AlreadyLost
        );
        // The same request, on a new session; the old one's nodes are gone when the server expires it.
        let next = granted(happens("an answer to the acquire", backend.acquire(&queued)).await);
        assert!(next.token() > hold.token());
        assert_eq!(client.list_children("/test/a").await.unwrap().len(), 1);
    });
}

/// At any moment, as when another runtime takes over.
#[testbed::test]
async fn futures_that_were_dropped_half_way_can_be_asked_again() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    backend.connect().await.unwrap();
    let directory = format!("{root}/a");
    for step in 0..25 {
        let time = Duration::from_micros(100 * step);
        let (request, _control) = waiting("a");
        let _ = timeout(time, backend.acquire(&request)).await;
        let hold = acquire(&backend, &request).await;
        assert_eq!(client.list_children(&directory).await.unwrap().len(), 1);
        let _ = timeout(time, hold.release(ReleaseOptions::default())).await;
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
        let (request, _control) = waiting("a");
        let _ = timeout(time, backend.acquire(&request)).await;
        let _ = timeout(time, backend.abandon(&request)).await;
        happens("an answer to the abandon", backend.abandon(&request))
            .await
            .unwrap();
        // The server may have deleted the directory by now.
        assert!(children_until(&client, &directory, |_| true).await.is_empty());
    }
}
