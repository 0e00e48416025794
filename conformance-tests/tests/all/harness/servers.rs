//! Real servers for the suites: one that all cases of a binary share, and fresh ones for those that restart theirs.

use std::net::SocketAddr;

use conformance_tests::{NoServer, Route, ServerUse};
use testbed::{Error, Server};
use tokio::sync::OnceCell;

/// The server for one case, started by `start` unless the shared one serves.
///
/// `POLYLOCK_OFFLINE=1` asks for none: then the tests are skipped.
pub(crate) async fn server_for<F: Future<Output = Result<Server, Error>>>(
    wanted: ServerUse,
    shared: &'static OnceCell<Server>,
    start: impl FnOnce() -> F,
) -> Result<Server, NoServer> {
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
    if wanted == ServerUse::Own && server.is_external() {
        return Err(NoServer::Offline(format!(
            "the server at {} is not ours to restart",
            server.address()
        )));
    }
    Ok(server)
}

/// The server's URL by this route.
pub(crate) async fn url_by(route: &Route, url: &str) -> String {
    let address = address_of(url);
    let routed = route.resolve(address).await;
    url.replacen(&address.to_string(), &routed.to_string(), 1)
}

/// Where a URL with a numeric host leads.
pub(crate) fn address_of(url: &str) -> SocketAddr {
    let rest = url.split_once("://").expect("a URL has a scheme").1;
    let authority = rest.split(['/', '?']).next().expect("a split has a first part");
    let host = authority.rsplit('@').next().expect("a split has a first part");
    host.parse()
        .unwrap_or_else(|error| panic!("the server's address {host:?}: {error}"))
}
