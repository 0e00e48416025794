//! The backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, Change, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, Guarantee, LockName, Result, Verdict};
use parking_lot::Mutex;

use crate::acquire::acquire;
use crate::client::Client;
use crate::config::QuorumConfig;
use crate::node::Node;
use crate::protocol::Known;
use crate::{end, guarantees, probe, status};

/// One lock over several independent servers, of which a majority has to agree. A clone shares the servers.
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use lock_core::backend::DistributedLock;
/// # use lock_core::{Locker, MemoryBackend};
/// # use lock_quorum::QuorumBackend;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let servers: Vec<MemoryBackend> = (0..3).map(|_| MemoryBackend::new()).collect();
/// let nodes = servers.iter().map(|server| Arc::new(server.clone()) as Arc<dyn DistributedLock>);
/// let locks = Locker::new(QuorumBackend::new(nodes)?);
///
/// servers[1].set_available(false); // one of three may be down
/// let guard = locks.lock("orders/42").acquire().await?;
/// assert!(locks.status("orders/42").await?.is_held());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct QuorumBackend {
    client: Arc<Client>,
    capabilities: Capabilities,
}

impl QuorumBackend {
    /// A quorum of these nodes with default settings. Does no I/O.
    ///
    /// Choose an odd number of nodes. Of four nodes three have to agree, so that four survive the failure of one, as three do.
    /// With an even number, it logs a warning by `tracing` under the target `polylock`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] without nodes, and for a node whose tokens cannot be
    /// [chosen](Capabilities::any_floor).
    pub fn new(nodes: impl IntoIterator<Item = Arc<dyn DistributedLock>>) -> Result<Self> {
        Self::with_config(nodes, &QuorumConfig::new())
    }

    /// A quorum of these nodes with these settings. Does no I/O, and warns of an even number as [`new`](Self::new) does.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for settings that are out of range.
    pub fn with_config(
        nodes: impl IntoIterator<Item = Arc<dyn DistributedLock>>,
        config: &QuorumConfig,
    ) -> Result<Self> {
        config.check()?;
        let backends: Vec<_> = nodes.into_iter().collect();
        let known = Arc::new(Mutex::new(Known::new(backends.len())));
        let nodes = backends.into_iter().enumerate();
        let nodes: Vec<Node> = nodes
            .map(|(number, backend)| Node::new(backend, number, &known))
            .collect();
        if nodes.is_empty() {
            let message = "a quorum without nodes grants nothing: name at least one server, better three";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if let Some(index) = nodes.iter().position(|node| !node.capabilities.any_floor) {
            let message = format!(
                "node {} ({}) cannot be part of a quorum: its tokens cannot be chosen",
                index + 1,
                nodes[index].kind()
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if nodes.len().is_multiple_of(2) {
            tracing::warn!(target: "polylock", nodes = nodes.len(),
                "a quorum of an even number of nodes survives no more failures than one node less: add or remove one");
        }
        if let Some(delay) = config.restart_delay() {
            // One that has the delay refuses longer TTLs.
            for (index, node) in nodes.iter().enumerate() {
                if node.capabilities.longest_ttl > delay {
                    tracing::warn!(target: "polylock", node = index + 1, kind = node.kind(),
                        "this node of a quorum has no restart_delay: if it loses its data, or an empty server replaces it, keep it \
                         stopped for the longest TTL");
                }
            }
        }
        let capabilities = capabilities(&nodes, config);
        let client = Arc::new(Client::new(nodes, known, config.patience(), config.restart_delay()));
        Ok(Self { client, capabilities })
    }
}

/// The features that all nodes have and that a majority of them can provide.
fn capabilities(nodes: &[Node], config: &QuorumConfig) -> Capabilities {
    let all = |has: fn(&Capabilities) -> bool| nodes.iter().all(|node| has(&node.capabilities));
    let shortest = nodes.iter().map(|node| node.capabilities.shortest_ttl).max();
    let longest = nodes.iter().map(|node| node.capabilities.longest_ttl).min();
    let mut capabilities = Capabilities::default();
    capabilities.extend = all(|node| node.extend);
    capabilities.fixed_lease = all(|node| node.fixed_lease);
    capabilities.minimum_hold = all(|node| node.minimum_hold);
    capabilities.ordered = all(|node| node.ordered);
    capabilities.durable_tokens = all(|node| node.durable_tokens);
    capabilities.follow = all(|node| node.follow);
    capabilities.shared = all(|node| node.shared);
    capabilities.permits = u32::from(all(|node| node.permits > 0));
    capabilities.shortest_ttl = shortest.unwrap_or(capabilities.shortest_ttl);
    capabilities.longest_ttl = longest.unwrap_or(capabilities.longest_ttl);
    if let Some(delay) = config.restart_delay() {
        capabilities.longest_ttl = capabilities.longest_ttl.min(delay);
    }
    capabilities
}

#[async_trait]
impl DistributedLock for QuorumBackend {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        let nodes = self.client.nodes.iter();
        guarantees::keeps(guarantee, nodes.map(|node| node.backend.keeps(guarantee)).collect())
    }

    async fn connect(&self) -> Result<()> {
        probe::connect(&self.client).await
    }

    async fn close(&self) -> Result<()> {
        probe::close(&self.client).await
    }

    fn check_ttl(&self, ttl: Duration) -> Result<()> {
        let mut nodes = self.client.nodes.iter();
        nodes.try_for_each(|node| node.backend.check_ttl(ttl))?;
        probe::warn_of_short_ttl(&self.client, ttl);
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = acquire(&self.client, request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let abandoned = end::abandon(&self.client, request).await;
        abandoned.map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let status = status::status(&self.client, name).await;
        status.map_err(|error| error.with_name(name))
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let followed = status::follow(&self.client, name).await;
        followed.map_err(|error| error.with_name(name))
    }
}

impl fmt::Debug for QuorumBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumBackend")
            .field("nodes", &self.client.nodes)
            .finish_non_exhaustive()
    }
}
