//! What a third party writes to have its backend tested.

use std::fmt::{self, Debug};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::DistributedLock;

use crate::link::Link;
use crate::proxy::FaultProxy;
use crate::subject::Subject;

/// A server to test against: how to make clients of it, and which faults it can be made to have.
///
/// One value serves one case. A lock library that is no backend implements this trait alone and runs the subject
/// cases; a backend implements [`BackendHarness`] as well and runs all of them.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The server for one case. Called on a runtime of its own, outside the case's.
    ///
    /// # Errors
    /// [`NoServer`] when there is none.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn start(server: ServerUse) -> Result<Self, NoServer>
    where
        Self: Sized;

    /// The same server, from what [`address`](Self::address) said, in a child process.
    fn attach(address: &str) -> Self
    where
        Self: Sized;

    /// What another process needs to know to reach this server; `None` only where no other process can.
    fn address(&self) -> Option<String>;

    /// Which times suit the server.
    fn timing(&self) -> Timing;

    /// A new client in this namespace, with connections of its own, that has not connected yet.
    ///
    /// Namespaces are short and of `a-z`, `0-9` and `_`; each case has one of its own, which starts empty.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject>;

    /// Ends the hold of this name at the server, behind the back of its holder, whose clients and connections stay
    /// alive where the server has any other way.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn take_away(&self, namespace: &str, name: &str);

    /// Stops a server of [`ServerUse::Own`] as a crash would, and starts it again at the same address.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn restart(&self, data: Data);

    /// Names that a careless encoding would let meet what the server keeps beside this name: its auxiliary keys,
    /// files or directories, with and without the namespace.
    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String>;
}

/// A [`Harness`] of a backend, on which the raw cases run too. Its [`subject`](Harness::subject) is
/// [`LockerSubject::new`](crate::LockerSubject::new) over [`backend`](Self::backend).
#[async_trait]
pub trait BackendHarness: Harness {
    /// A new client in this namespace, with connections of its own, that has not connected yet.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock>;
}

/// What a case does to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerUse {
    /// Nothing that another case would notice: one server may serve them all at the same time.
    Shared,
    /// It restarts the server.
    Own,
}

/// What a restarted server still knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// All that it had acknowledged.
    Kept,
    /// Nothing.
    Lost,
}

/// Why there is no server to test against.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NoServer {
    /// None was wanted: the tests are skipped, visibly.
    Offline(String),
    /// There is none, or it did not start: the tests fail, saying this.
    Missing(String),
}

/// The times at which cases run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// Whether tokio's clock is paused and runs ahead whenever everybody waits. Defaults to false.
    pub paused: bool,
    /// The ttl that cases ask for. Defaults to 1 s.
    pub ttl: Duration,
    /// How long after its ttl a dead client's hold may still stand. Defaults to nothing.
    pub tick: Duration,
    /// How long a busy machine may take for what needs no waiting. Defaults to 20 s.
    pub patience: Duration,
}

/// How a client reaches the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Route {
    /// Straight.
    Direct,
    /// Over a way on which things go wrong.
    Through(Link),
    /// To an address where there is no server.
    Nowhere,
}

impl Route {
    /// The address for a client to connect to instead of the server's. It serves as long as the runtime lives.
    ///
    /// # Panics
    /// When this machine has no free port.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn resolve(&self, server: SocketAddr) -> SocketAddr {
        match self {
            Self::Direct => server,
            Self::Through(link) => {
                let proxy = FaultProxy::start(server, link.clone()).await.unwrap_or_else(no_port);
                let address = proxy.address();
                // It ends with the case's runtime.
                std::mem::forget(proxy);
                address
            }
            Self::Nowhere => {
                // Port 1 of this machine: nobody listens on it, and nobody can be given it meanwhile.
                SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
            }
        }
    }
}

fn no_port<T>(error: std::io::Error) -> T {
    panic!("no free port for a fault proxy: {error}")
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            paused: false,
            ttl: Duration::from_secs(1),
            tick: Duration::ZERO,
            patience: Duration::from_secs(20),
        }
    }
}

impl Timing {
    /// For a server within the process, on tokio's paused clock.
    pub fn paused() -> Self {
        Self {
            paused: true,
            ttl: Duration::from_secs(10),
            ..Self::default()
        }
    }

    /// Sets the ttl that cases ask for.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long after its ttl a dead client's hold may still stand.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets how long a busy machine may take for what needs no waiting.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline(reason) | Self::Missing(reason) => f.write_str(reason),
        }
    }
}
