//! Real servers for the suites: one that all cases of a binary share, and fresh ones for those that restart theirs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::{LockerSubject, NoServer, Route, ServerUse, Subject};
use lock_core::backend::DistributedLock;
use testbed::{Error, Server};
use tokio::sync::OnceCell;

/// The server for one case, started by `start` unless the shared one serves.
///
/// `POLYLOCK_OFFLINE=1` asks for none: then the tests are skipped.
pub(crate) async fn server_for<S: Started, F: Future<Output = Result<S, Error>>>(
    wanted: ServerUse,
    shared: &'static OnceCell<S>,
    start: impl FnOnce() -> F,
) -> Result<S, NoServer> {
    if testbed::is_offline() {
        return Err(NoServer::Offline("POLYLOCK_OFFLINE asks for no server".to_owned()));
    }
    let started = match wanted {
        ServerUse::Shared => shared.get_or_try_init(start).await.cloned(),
        ServerUse::Own => start().await,
    };
    let server = started.map_err(|error| match error {
        Error::LeftOut { .. } => NoServer::Offline(error.to_string()),
        _ => NoServer::Missing(error.to_string()),
    })?;
    match server.external() {
        Some(address) if wanted == ServerUse::Own => Err(NoServer::Offline(format!(
            "the server at {address} is not ours to restart"
        ))),
        _ => Ok(server),
    }
}

/// A server, or several that are one to their clients.
pub(crate) trait Started: Clone {
    /// Where it is, if it ran already.
    fn external(&self) -> Option<&str>;
}

impl Started for Server {
    fn external(&self) -> Option<&str> {
        self.is_external().then(|| self.address())
    }
}

/// The URL by this route.
pub(crate) async fn url_by(route: &Route, url: &str) -> String {
    let mut routed = Vec::new();
    for address in addresses_of(url) {
        routed.push(route.resolve(address).await.to_string());
    }
    url.replacen(hosts(url), &routed.join(","), 1)
}

/// Where a URL with numeric hosts leads.
fn addresses_of(url: &str) -> Vec<SocketAddr> {
    let address = |host: &str| {
        host.parse()
            .unwrap_or_else(|error| panic!("the server's address {host:?}: {error}"))
    };
    hosts(url).split(',').map(address).collect()
}

/// The hosts of a URL with their ports.
pub(crate) fn hosts(url: &str) -> &str {
    let rest = url.split_once("://").expect("a URL has a scheme").1;
    let authority = rest.split(['/', '?']).next().expect("a split has a first part");
    authority.rsplit('@').next().expect("a split has a first part")
}

/// The response timeout of clients without a link, and the operation timeout of all. No case tests them, and a busy machine may need
/// more than the default. A case waits twice as long, so that the error says what went wrong.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(10);

/// The connect timeout of clients behind a link: six round trips, which is what a connection with TLS takes, on the slowest line of
/// any case.
pub(crate) const CONNECT: Duration = Duration::from_secs(8);

/// The subject that a user of this backend has.
pub(crate) fn subject(backend: Arc<dyn DistributedLock>) -> Arc<dyn Subject> {
    subject_within(UNHURRIED, backend)
}

/// The same with another operation timeout.
pub(crate) fn subject_within(timeout: Duration, backend: Arc<dyn DistributedLock>) -> Arc<dyn Subject> {
    let configured = LockerSubject::configured(backend, |locker| locker.with_operation_timeout(timeout));
    Arc::new(configured)
}
