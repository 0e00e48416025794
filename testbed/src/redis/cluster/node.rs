//! How a node of a cluster is run.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::port::Port;
use crate::recipe::{Recipe, Run};
use crate::url::Url;
use crate::{Error, Redis};

/// One node of a cluster.
#[derive(Debug)]
pub(super) struct Node {
    redis: Redis,
    bus: Arc<Port>,
}

impl Node {
    pub(super) fn new(redis: Redis, bus: Port) -> Self {
        let redis = match redis.tls {
            Some(_) => redis.setting("tls-cluster", ["yes"]),
            None => redis,
        };
        // A second is enough on loopback, and keeps the tests of fail-overs short.
        let redis = redis
            .setting("cluster-enabled", ["yes"])
            .setting("cluster-port", [bus.number().to_string()])
            .setting("cluster-node-timeout", ["1000"])
            .setting("cluster-replica-validity-factor", ["0"]);
        Self {
            redis,
            bus: Arc::new(bus),
        }
    }
}

impl Recipe for Node {
    fn name(&self) -> &'static str {
        self.redis.name()
    }

    fn url_variable(&self) -> &'static str {
        self.redis.url_variable()
    }

    fn default_port(&self) -> u16 {
        self.redis.default_port()
    }

    fn url(&self, port: u16) -> Url {
        match &self.redis.tls {
            Some((certificates, _)) => {
                let parameters = format!("/?{}", certificates.parameters());
                Url::new("rediss+cluster", None, port, &parameters)
            }
            None => Url::new("redis+cluster", None, port, ""),
        }
    }

    fn plain_port(&self) -> Option<u16> {
        self.redis.plain_port()
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        self.redis.fill(data, port)
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        debug_assert_ne!(self.bus.number(), port, "both are reserved");
        self.redis.command(data, port)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        self.redis.is_ready(run)
    }
}
