//! The backend type, and what it only reads.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, Change, DistributedLock, ListFrom, ListPage, LockStatus, Revoke, Revoked,
};
use lock_core::{Error, ErrorKind, FencingToken, Guarantee, LockName, Result, Verdict};

use crate::acl;
use crate::acquire;
use crate::client::Client;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::follow;
use crate::list;
use crate::probe;
use crate::revoke;
use crate::server_id;
use crate::state::{ConnectionState, StateWatch};
use crate::status;

/// Locks in ZooKeeper: ephemeral sequential nodes of a few sessions.
///
/// See the [crate's documentation](crate) for what it guarantees. Clones share the sessions.
///
/// It makes its own sessions and takes no existing `zookeeper_client::Client`: a client is one session, and cannot be
/// renewed when that has expired.
#[derive(Clone, Debug)]
pub struct ZooKeeperBackend {
    client: Arc<Client>,
}

impl ZooKeeperBackend {
    /// A backend that connects at its first use. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) names the setting that is wrong and says what it
    /// may be.
    pub fn new(config: ZooKeeperConfig) -> Result<Self> {
        config.check()?;
        Ok(Self {
            client: Arc::new(Client::new(config)),
        })
    }

    /// A backend from a [URL](ZooKeeperConfig::from_url).
    ///
    /// # Errors
    /// As [`ZooKeeperConfig::from_url`].
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(ZooKeeperConfig::from_url(url)?)
    }

    /// The session timeout that the server granted, which is the shortest ttl. `None` while there is no session: before the
    /// first connection, and from the end of one session to the next. It differs from the configured one if the server's
    /// `minSessionTimeout` or `maxSessionTimeout` do not allow that.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::Error> {
    /// use lock_core::backend::DistributedLock;
    /// let zookeeper = lock_zookeeper::ZooKeeperBackend::from_url("zookeeper://app:secret@zk1,zk2,zk3")?;
    /// zookeeper.connect().await?;
    /// println!("session timeout: {:?}", zookeeper.session_timeout());
    /// # Ok(()) }
    /// ```
    pub fn session_timeout(&self) -> Option<Duration> {
        self.client.sessions.session_timeout()
    }
}

impl ZooKeeperBackend {
    /// Returns the state of the sessions at this moment. Does no I/O.
    pub fn state(&self) -> ConnectionState {
        self.client.sessions.states().state()
    }

    /// Watches whether the sessions are connected. A program does not need it: a guard knows by itself when it is lost.
    ///
    /// # Examples
    /// ```no_run
    /// use lock_zookeeper::ConnectionState;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let zookeeper = lock_zookeeper::ZooKeeperBackend::from_url("zookeeper://zk1,zk2,zk3?acl=open")?;
    /// let mut watch = zookeeper.watch_state();
    /// tokio::spawn(async move {
    ///     while let Some(state) = watch.changed().await {
    ///         match state {
    ///             ConnectionState::Connected => println!("connected"),
    ///             ConnectionState::Suspended => println!("no answer: holds may be lost soon"),
    ///             ConnectionState::Lost => println!("a session has ended, and its holds are lost"),
    ///             _ => {}
    ///         }
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    pub fn watch_state(&self) -> StateWatch {
        self.client.sessions.states().watch()
    }
}

impl ZooKeeperBackend {
    /// Gives the root path, the directories of names and all nodes in them the ACL of this configuration: for the [change of a
    /// password](https://docs.rs/lock-zookeeper/latest/lock_zookeeper/#change-of-a-password). Locks stay held. A few requests for each name, 64 names at a time.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](lock_core::ErrorKind::Denied) if a node belongs to an identity that this configuration does not have.
    /// [`ErrorKind::Unavailable`](lock_core::ErrorKind::Unavailable) if the server is not reached or the connection breaks. Some nodes
    /// may have the new ACL then; the call may be repeated.
    ///
    /// # Cancel safety
    /// Dropping it leaves some nodes with the old ACL.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::Error> {
    /// let url = "zookeeper://app:new@zk1,zk2,zk3?previous_password=old";
    /// lock_zookeeper::ZooKeeperBackend::from_url(url)?.rewrite_acls().await
    /// # }
    /// ```
    pub async fn rewrite_acls(&self) -> Result<()> {
        let session = self.client.sessions.any().await?;
        let connection = session.connected().await?;
        let rewriting = acl::rewrite(&connection.client, &self.client.config);
        rewriting.await.map_err(error::lock_error)
    }
}

#[async_trait]
impl DistributedLock for ZooKeeperBackend {
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::default()
            .fixed_lease()
            .fifo()
            .pass()
            .minimum_hold()
            .ordered()
            .any_floor()
            .follow()
            .list()
            .revoke_now()
            .session_renewal();
        let capabilities = capabilities.shared().downgrade().permits(u32::MAX);
        let longest = capabilities.longest_ttl;
        capabilities.ttl_between(self.client.config.session_timeout(), longest)
    }

    fn address(&self) -> Option<String> {
        let config = &self.client.config;
        let servers = config.servers().iter().map(|server| server.to_lowercase());
        let mut servers: Vec<String> = servers.collect();
        servers.sort_unstable();
        Some(format!("zookeeper {}{}", servers.join(","), config.root()))
    }

    async fn server_id(&self) -> Result<Option<String>> {
        let session = self.client.sessions.any().await?;
        self.client.within_limit(&session, server_id::read(&session)).await
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        probe::keeps(guarantee, &self.client.config)
    }

    async fn connect(&self) -> Result<()> {
        let session = self.client.sessions.any().await?;
        self.client
            .within_limit(&session, async {
                let connection = session.connected().await?;
                session.sync(&connection).await.map_err(error::lock_error)
            })
            .await
    }

    async fn close(&self) -> Result<()> {
        self.client.sessions.close().await
    }

    fn check_ttl(&self, ttl: Duration) -> Result<()> {
        match self.session_timeout() {
            Some(timeout) if ttl < timeout => Err(error::ttl_too_short(ttl, timeout)),
            _ => Ok(()),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = acquire::acquire(&self.client, request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let abandoned = acquire::abandon(&self.client, request).await;
        abandoned.map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let status = async {
            let session = self.client.sessions.any().await?;
            let status = status::read(&session, self.client.config.root(), name);
            self.client.within_limit(&session, status).await
        };
        status.await.map_err(|error| error.with_name(name))
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let following = async {
            let session = self.client.sessions.any().await?;
            let following = follow::follow(&session, self.client.config.root(), name);
            self.client.within_limit(&session, following).await
        };
        following.await.map_err(|error| error.with_name(name))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let session = self.client.sessions.any().await?;
        let page = list::list(&session, self.client.config.root(), from, at_most);
        self.client.within_limit(&session, page).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        if how != Revoke::Now {
            let message = "lock-zookeeper cannot revoke a hold at the end of its lease";
            return Err(Error::new(ErrorKind::Unsupported, message).with_name(name));
        }
        let config = &self.client.config;
        let revoked = async {
            let session = self.client.sessions.any().await?;
            // Sooner than the callers' own limit, so that they learn why.
            let limit = config.connect_timeout() * 4 / 5;
            let revoking = revoke::now(&session, config.root(), name, token, limit);
            self.client.within_limit(&session, revoking).await
        };
        revoked.await.map_err(|error| error.with_name(name))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    /// However long an outage is, and however many requests it meets.
    #[tokio::test]
    async fn requests_that_never_had_a_session_leave_nothing_in_memory() {
        const TRIES: usize = 2000;
        let nobody = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let config = ZooKeeperConfig::new([nobody.to_string()])
            .with_open_acl()
            .with_connect_timeout(Duration::from_millis(300));
        let backend = ZooKeeperBackend::new(config).unwrap();
        let name = LockName::new("a").unwrap();
        let failed = join_all((0..TRIES).map(async |_| {
            let terms = Terms::new(Duration::from_secs(10));
            let (request, _control) = RequestOptions::new(name.clone(), terms).waits(false).start();
            backend.acquire(&request).await.unwrap_err()
        }));
        for error in failed.await {
            assert!(error.is_not_executed(), "{error}");
        }
        assert!(backend.client.claims.is_empty());
    }
}
