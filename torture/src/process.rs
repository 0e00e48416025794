//! The worker processes, each with a proxy of its own on its way to the server.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use conformance_tests::{FaultProxy, Link};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::servers::LockServer;
use crate::worker::job::{DRAINED, Job, Order, READY, RECOVERED};

/// A worker process. If it is killed, its next incarnation follows.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pub(crate) index: usize,
    pub(crate) link: Link,
    /// The ways to the nodes of a quorum, or to the servers and then the Sentinels, each by itself.
    pub(crate) node_links: Vec<Link>,
    /// Taken while a fault uses the process, or the link.
    pub(crate) in_use: tokio::sync::Mutex<()>,
    pub(crate) link_in_use: tokio::sync::Mutex<()>,
    job: Job,
    spawner: Spawner,
    incarnation: Mutex<Option<Incarnation>>,
    /// One on the way to each server, and one more where there are node links.
    _proxies: Vec<FaultProxy>,
}

#[derive(Debug)]
struct Incarnation {
    number: u32,
    child: Child,
    orders: Option<ChildStdin>,
    said: watch::Receiver<Said>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
enum Said {
    #[default]
    Nothing,
    Ready,
    Recovered,
    Drained,
}

impl WorkerProcess {
    pub(crate) async fn new(
        index: usize,
        config: &RunConfig,
        server: &LockServer,
        resource: SocketAddr,
        dir: PathBuf,
        spawner: Spawner,
    ) -> Result<Self> {
        let link = Link::new();
        let (mut proxies, mut node_links, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for mut address in server.addresses() {
            if config.backend.has_node_links() {
                let node_link = Link::new();
                let proxy = FaultProxy::start(address, node_link.clone()).await?;
                address = proxy.address();
                node_links.push(node_link);
                proxies.push(proxy);
            }
            let proxy = FaultProxy::start(address, link.clone()).await?;
            addresses.push(proxy.address());
            proxies.push(proxy);
        }
        let ports = server.addresses().into_iter().map(|address| address.port());
        let ways = ports.zip(addresses.iter().copied()).collect();
        let job = Job {
            config: config.clone(),
            process: index,
            incarnation: 0,
            url: server.url_at(&addresses),
            address: addresses[0],
            ways,
            resource,
            dir,
            parent: std::process::id(),
        };
        Ok(Self {
            index,
            link,
            node_links,
            in_use: tokio::sync::Mutex::default(),
            link_in_use: tokio::sync::Mutex::default(),
            job,
            spawner,
            incarnation: Mutex::new(None),
            _proxies: proxies,
        })
    }

    /// Starts the first process, or the next one.
    pub(crate) async fn start(&self, incarnation: u32) -> Result<()> {
        let job = Job {
            incarnation,
            ..self.job.clone()
        };
        // Of two versions every other process is of the older one.
        let older = job.config.beside.clone().filter(|_| self.index % 2 == 1);
        let mut child = self.spawner.spawn(serde_json::to_string(&job)?, older).await?;
        let (say, said) = watch::channel(Said::Nothing);
        let output = child.stdout.take().expect("its stdout is piped");
        let orders = child.stdin.take();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                match line.as_str() {
                    READY => say.send_replace(Said::Ready),
                    RECOVERED => say.send_replace(Said::Recovered),
                    DRAINED => say.send_replace(Said::Drained),
                    _ => continue,
                };
            }
        });
        *self.current() = Some(Incarnation {
            number: incarnation,
            child,
            orders,
            said,
        });
        Ok(())
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.current().as_ref().map_or(0, |incarnation| incarnation.number)
    }

    pub(crate) fn order(&self, order: Order) {
        if let Some(Incarnation {
            orders: Some(orders), ..
        }) = &mut *self.current()
        {
            // One that has ended is found out otherwise.
            let _ = writeln!(orders, "{}", order.word());
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(incarnation) = &*self.current() {
            // It is ours and not reaped: the number is no other process's.
            let _ = kill_process(incarnation.pid(), signal);
        }
    }

    /// Kills the process. From when it was dying.
    pub(crate) fn kill(&self) -> u64 {
        let mut incarnation = self.current();
        let from = clock::now();
        drop(incarnation.take());
        from
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.current()
            .as_ref()
            .is_some_and(|incarnation| matches!(waitid(WaitId::Pid(incarnation.pid()), options), Ok(Some(_))))
    }

    /// Waits until its process has reached the server.
    pub(crate) async fn is_ready(&self, limit: Duration) -> bool {
        self.has_said(Said::Ready, limit).await
    }

    /// Waits until its process has acquired often enough after the faults.
    pub(crate) async fn has_recovered(&self, limit: Duration) -> bool {
        self.has_said(Said::Recovered, limit).await
    }

    /// Waits until its process holds nothing and waits for nothing.
    pub(crate) async fn has_drained(&self, limit: Duration) -> bool {
        self.has_said(Said::Drained, limit).await
    }

    /// Lets the process end by itself, and says how it did.
    pub(crate) async fn end(&self, limit: Duration) -> Option<ExitStatus> {
        if let Some(incarnation) = &mut *self.current() {
            incarnation.orders = None;
        }
        let start = std::time::Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// The exit status of the process, if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.current().as_mut()?.child.try_wait().ok()?
    }

    async fn has_said(&self, what: Said, limit: Duration) -> bool {
        let Some(mut said) = self.current().as_ref().map(|incarnation| incarnation.said.clone()) else {
            return false;
        };
        let waiting = said.wait_for(|said| *said >= what);
        matches!(tokio::time::timeout(limit, waiting).await, Ok(Ok(_)))
    }

    fn current(&self) -> MutexGuard<'_, Option<Incarnation>> {
        self.incarnation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Incarnation {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Incarnation {
    fn drop(&mut self) {
        // It has ended already where these fail.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts worker processes from one thread that lives as long as they: the kernel kills them when the *thread* that
/// started them ends.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(mpsc::Sender<(String, Option<PathBuf>, oneshot::Sender<std::io::Result<Child>>)>);

impl Spawner {
    pub(crate) fn start() -> Self {
        let (send, jobs) = mpsc::channel::<(String, Option<PathBuf>, oneshot::Sender<_>)>();
        std::thread::spawn(move || {
            for (job, program, answer) in jobs {
                // Nobody waits for it any more when the run was given up.
                let _ = answer.send(spawn(&job, program));
            }
        });
        Self(send)
    }

    /// By this program, or our own.
    async fn spawn(&self, job: String, program: Option<PathBuf>) -> Result<Child> {
        let (answer, child) = oneshot::channel();
        let gone = || Error::new("the thread that starts processes has ended");
        self.0.send((job, program, answer)).map_err(|_| gone())?;
        Ok(child.await.map_err(|_| gone())??)
    }
}

fn spawn(job: &str, program: Option<PathBuf>) -> std::io::Result<Child> {
    Command::new(program.map_or_else(std::env::current_exe, Ok)?)
        .args(["worker", job])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}
