//! The servers: a Redis Cluster, or the master that Sentinels name.

use std::sync::Arc;

use lock_core::CredentialSource;
use redis::ConnectionAddr;

use super::hosts::Address;
use super::{RedisConfig, Sentinels};

impl RedisConfig {
    /// The Redis Cluster that has these nodes, with default settings. Some of them are enough: they say where the others are.
    ///
    /// ```
    /// # use lock_redis::RedisConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = RedisConfig::cluster([("cache-1", 7000), ("cache-2", 7000)]);
    /// let same = RedisConfig::from_url("redis+cluster://cache-1:7000,cache-2:7000")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn cluster(nodes: impl IntoIterator<Item = (impl Into<String>, u16)>) -> Self {
        let nodes: Vec<Address> = nodes.into_iter().map(|(host, port)| (host.into(), port)).collect();
        let (host, port) = nodes.first().cloned().unwrap_or_default();
        Self {
            nodes: Some(nodes),
            ..Self::new(host, port)
        }
    }

    /// The Redis that these Sentinels call the master of this name, with default settings. Name all Sentinels: those that are not
    /// named are not asked.
    ///
    /// User, password, database and TLS are those of the Redis. The Sentinels have credentials of their own
    /// ([`with_sentinel_user`](Self::with_sentinel_user), [`with_sentinel_password`](Self::with_sentinel_password)), and are
    /// reached over TLS if the Redis is. The crate page says [what a failover may
    /// cost](https://docs.rs/lock-redis/latest/lock_redis/#redis-sentinel).
    ///
    /// ```
    /// # use lock_redis::RedisConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = RedisConfig::sentinel([("s1", 26379), ("s2", 26379), ("s3", 26379)], "mymaster");
    /// let same = RedisConfig::from_url("redis+sentinel://s1,s2,s3/mymaster")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn sentinel(servers: impl IntoIterator<Item = (impl Into<String>, u16)>, master: impl Into<String>) -> Self {
        let servers: Vec<Address> = servers.into_iter().map(|(host, port)| (host.into(), port)).collect();
        let (host, port) = servers.first().cloned().unwrap_or_default();
        Self {
            sentinels: Some(Sentinels::new(servers, master.into())),
            ..Self::new(host, port)
        }
    }

    /// Sets the user name that the Sentinels ask for. Defaults to none, which is the user `default`. Without Sentinels it has no
    /// effect.
    #[must_use]
    pub fn with_sentinel_user(mut self, user: impl Into<String>) -> Self {
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.user = Some(user.into());
        }
        self
    }

    /// Sets the password that the Sentinels ask for. Defaults to none; the password of the Redis is never sent to them. Without
    /// Sentinels it has no effect.
    #[must_use]
    pub fn with_sentinel_password(mut self, password: impl Into<String>) -> Self {
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.password = Some(password.into());
        }
        self
    }

    /// Sets where the password that the Sentinels ask for comes from, instead of [`with_sentinel_password`](Self::with_sentinel_password).
    /// It is asked before each connection to a Sentinel. Defaults to none. Without Sentinels it has no effect.
    #[must_use]
    pub fn with_sentinel_credentials(mut self, source: CredentialSource) -> Self {
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.credentials = Some(source);
        }
        self
    }

    /// Sets where the nodes of a Redis Cluster are, by the host and the port that they say of themselves, and where the master
    /// is that Sentinels name: for servers behind an address translation or a tunnel. It also applies to the nodes of a cluster that
    /// the configuration names, but not to the Sentinels. Defaults to what they say.
    #[must_use]
    pub fn with_node_addresses(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.node_addresses = Some(Arc::new(map));
        self
    }

    /// Of a Redis Cluster: some of its nodes.
    pub(crate) fn nodes(&self) -> Option<&[Address]> {
        self.nodes.as_deref()
    }

    /// The same, but for the node at this address.
    pub(crate) fn at_node(&self, (host, port): &Address) -> Self {
        let mut config = self.clone();
        config.info = config.info.set_addr(ConnectionAddr::Tcp(host.clone(), *port));
        config
    }

    /// The address at which this process reaches the node that reports `address`.
    pub(crate) fn mapped(&self, address: &Address) -> Address {
        match &self.node_addresses {
            Some(map) => map(&address.0, address.1),
            None => address.clone(),
        }
    }

    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        self.sentinels.as_ref()
    }
}
