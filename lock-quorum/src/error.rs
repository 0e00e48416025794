//! Errors that name every node.

use std::fmt;

use lock_core::{Error, ErrorKind};

/// Why nodes of a quorum did not do what they were asked for: the [cause](Error::cause) of a quorum's errors.
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use lock_core::backend::DistributedLock;
/// # use lock_core::{Locker, MemoryBackend};
/// # use lock_quorum::{NodeErrors, QuorumBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let nodes: Vec<_> = (0..3).map(|_| MemoryBackend::new()).collect();
/// let children = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn DistributedLock>);
/// let locks = Locker::new(QuorumBackend::new(children)?);
/// nodes[0].set_available(false);
/// nodes[2].set_available(false);
/// let error = locks.lock("a").try_acquire().await.unwrap_err();
/// let causes = error.cause().and_then(|cause| cause.downcast_ref::<NodeErrors>());
/// let positions: Vec<_> = causes.unwrap().iter().map(|(position, _)| position).collect();
/// assert_eq!(positions, [1, 3]);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct NodeErrors(Vec<NodeError>);

#[derive(Clone)]
struct NodeError {
    node: usize,
    kind: String,
    error: Error,
}

impl NodeErrors {
    /// Adds the error of a node, in place of an earlier one.
    pub(crate) fn add(&mut self, node: usize, kind: &str, error: Error) {
        self.0.retain(|known| known.node != node);
        let index = self.0.partition_point(|known| known.node < node);
        let kind = kind.to_owned();
        self.0.insert(index, NodeError { node, kind, error });
    }

    /// The failed nodes: the position of each among all nodes, from 1, and its error.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Error)> {
        self.0.iter().map(|known| (known.node + 1, &known.error))
    }

    /// The quorum's error: it may pass if that of one node may pass.
    pub(crate) fn into_error(self, message: impl Into<String>) -> Error {
        let passes = self.0.is_empty() || self.0.iter().any(|known| known.error.is_retryable());
        let kind = match self.0.iter().find(|known| !known.error.is_retryable()) {
            _ if passes => ErrorKind::Unavailable,
            Some(known) => known.error.kind(),
            None => ErrorKind::Unavailable,
        };
        let error = Error::new(kind, message.into()).retryable(passes);
        match self.0.is_empty() {
            true => error,
            false => error.with_source(self),
        }
    }
}

impl fmt::Display for NodeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, known) in self.0.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(
                f,
                "{separator}node {} ({}): {}",
                known.node + 1,
                known.kind,
                known.error
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for NodeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NodeErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_every_node_once_and_in_order() {
        let mut errors = NodeErrors::default();
        errors.add(2, "RedisBackend", Error::new(ErrorKind::Unavailable, "silent"));
        errors.add(0, "RedisBackend", Error::new(ErrorKind::Unavailable, "no answer"));
        errors.add(2, "RedisBackend", Error::new(ErrorKind::Denied, "wrong password"));
        let error = errors.into_error("no majority");
        let line = "no majority: node 1 (RedisBackend): no answer; node 3 (RedisBackend): wrong password";
        assert_eq!(error.to_string(), line);
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    }

    #[test]
    fn what_no_node_gets_over_does_not_pass() {
        let mut errors = NodeErrors::default();
        for node in 0..2 {
            errors.add(node, "RedisBackend", Error::new(ErrorKind::Denied, "wrong password"));
        }
        let error = errors.into_error("no majority");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
    }
}
