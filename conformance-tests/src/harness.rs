//! The harness: what you write to have your backend tested.

use std::fmt::{self, Debug};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::DistributedLock;

use crate::link::Link;
use crate::proxy::FaultProxy;
use crate::subject::Subject;

/// A server under test: how to make its clients, and how to cause its faults.
///
/// One value serves one case. It is dropped after the case, outside of any runtime, so it may own one. If its drop panics, or takes more
/// than 30 s, the case fails. A lock library that is no backend implements only this trait, and runs the subject cases. A backend also
/// implements [`BackendHarness`], and runs all cases.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The server for one case. Called on another runtime than the case's, which ends when this returns, and what was spawned on it too: a server in
    /// this process needs a thread of its own, and a client that is made here stops working. For [`ServerUse::Own`] it must be one that [`restart`](Self::restart) may restart at the same
    /// address. If the harness cannot restart its server, return [`NoServer::Offline`] for that, with the reason: the cases that restart
    /// it are skipped then, visibly. Nothing limits its time.
    ///
    /// # Errors
    /// [`NoServer`] if there is none, or none of this kind.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn start(server: ServerUse) -> Result<Self, NoServer>
    where
        Self: Sized;

    /// The same server in a child process, from the result of [`address`](Self::address). It lives until the process exits, and is not
    /// dropped then.
    fn attach(address: &str) -> Self
    where
        Self: Sized;

    /// The address of this server for another process, or `None` if no other process can reach it.
    fn address(&self) -> Option<String>;

    /// The times that suit the server.
    fn timing(&self) -> Timing;

    /// A new client in this namespace, with its own connections, not connected yet.
    ///
    /// A namespace is short and consists of `a-z`, `0-9` and `_`. Each case has its own, which is empty at first.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject>;

    /// The client with which a case looks at the server, and learns what the library can do. By default one like any other. A
    /// harness whose clients take long to start has it ready: the case may ask for it while a hold's TTL runs.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn observer(&self, namespace: &str) -> Arc<dyn Subject> {
        self.subject(namespace, &Route::Direct).await
    }

    /// Ends the hold of this name at the server, without its holder. If the server allows it, the holder's clients and
    /// connections stay alive.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn take_away(&self, namespace: &str, name: &str);

    /// Kills a server of [`ServerUse::Own`], and starts it again at the same address.
    ///
    /// It must do so: cases that restart the server show nothing otherwise. The suite notices if [`Data::Lost`] has lost nothing. Whether
    /// a server that keeps its data was ever away, it cannot see. Let [`start`](Self::start) return [`NoServer::Offline`] for
    /// [`ServerUse::Own`] if you cannot restart the server; then nobody calls this.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn restart(&self, data: Data);

    /// Lock names that a careless encoding would confuse with auxiliary keys, files or directories of this name, with and
    /// without the namespace.
    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String>;
}

/// The [`Harness`] of a backend, for the raw cases. Its [`subject`](Harness::subject) is
/// [`LockerSubject::new`](crate::LockerSubject::new) over [`backend`](Self::backend).
#[async_trait]
pub trait BackendHarness: Harness {
    /// A new client in this namespace, with its own connections, not connected yet.
    ///
    /// # Cancel safety
    /// Never dropped half-way.
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock>;
}

/// The effect of a case on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerUse {
    /// Nothing that affects another case: one server may serve all cases at the same time.
    Shared,
    /// It restarts the server.
    Own,
}

/// The data that a restarted server still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// All data that it had acknowledged.
    Kept,
    /// None.
    Lost,
}

/// Why there is no server to test against.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NoServer {
    /// The run is without servers, or without one that can be restarted: the tests are skipped, visibly.
    Offline(String),
    /// There is none, or it did not start: the tests fail with this message.
    Missing(String),
}

/// The times at which cases run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// Whether Tokio's clock is paused, and advances when all tasks wait. Defaults to false.
    pub paused: bool,
    /// The TTL that cases ask for. Defaults to 3 s: a busy machine may stand still for one or two. Not below the shortest TTL of the
    /// backend, which would refuse it.
    /// Cases hold and keep names for three times this, and extend a hold to six times this: the longest TTL of a backend is at least the
    /// former, and the latter if it declares `extend`.
    pub ttl: Duration,
    /// The time after its TTL for which a dead client's hold may still exist. Defaults to zero.
    pub tick: Duration,
    /// The time that a busy machine may take for an operation that waits for nothing. Defaults to 20 s.
    /// Cases hold names for 60 s or three times this, whichever is longer, so that a hold that a backend left behind does not expire
    /// while a case waits for the name. If the longest TTL of the backend is shorter, cases hold names for that, and wait for at
    /// most three quarters of it, unless a session renews the holds.
    ///
    /// A case that takes longer than 15 times this, or than 5 minutes if that is more, and 36 times the TTL and the tick, counts as
    /// hung. Some cases make hundreds of requests in that time: choose a longer patience if a request takes a second or more.
    pub patience: Duration,
    /// The longest round trip, in percent of the TTL, over which a hold must be kept. Defaults to 40, at least 10.
    pub round_trip_percent: u32,
}

/// The way in which a client reaches the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Route {
    /// Directly.
    Direct,
    /// Through a link that can fail.
    Through(Link),
    /// To an address without a server.
    Nowhere,
}

impl Route {
    /// The address to which a client connects instead of the server's. It works as long as the runtime lives.
    ///
    /// # Panics
    /// Panics if this machine has no free port.
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
            ttl: Duration::from_secs(3),
            tick: Duration::ZERO,
            patience: Duration::from_secs(20),
            round_trip_percent: 40,
        }
    }
}

impl Timing {
    /// The time for all that a case does, but for its waits for the ends of holds.
    pub(crate) fn for_all_requests(self) -> Duration {
        (15 * self.patience).max(Duration::from_secs(5 * 60))
    }

    /// The times for a server within the process, on Tokio's paused clock.
    pub fn paused() -> Self {
        Self {
            paused: true,
            ttl: Duration::from_secs(10),
            ..Self::default()
        }
    }

    /// Sets the TTL that cases ask for.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long after its TTL a dead client's hold may still exist.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets how long a busy machine may take for an operation that waits for nothing.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the longest round trip, in percent of the TTL, over which a hold must be kept.
    ///
    /// # Panics
    /// If it is below 10.
    #[must_use]
    pub fn with_round_trip_percent(mut self, percent: u32) -> Self {
        assert!(percent >= 10, "{percent} % of the TTL is no slow line");
        self.round_trip_percent = percent;
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
