//! A library, its server and its program, for one case.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_programs::Program;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::{Capabilities, DistributedLock};
use serde::{Deserialize, Serialize};
use testbed::Server;

use crate::backend::PeerBackend;
use crate::claims::Claim;
use crate::libraries::{self, Library};
use crate::process::Process;
use crate::subject::Peer;
use crate::view::View;

/// The TTL of libraries that have one for a client, and the timeout of sessions.
pub(crate) const TTL: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct PeerHarness {
    library: &'static Library,
    program: Program,
    url: String,
    /// Whether the case is about holders that are cut off.
    ends_uncertain: bool,
    /// Started before the case.
    observer: Mutex<Option<Arc<Process>>>,
    /// `None` in a child process.
    server: Option<Server>,
}

/// What a child process needs to know.
#[derive(Serialize, Deserialize)]
struct Address {
    library: String,
    ends_uncertain: bool,
    url: String,
    path: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl PeerHarness {
    pub(crate) fn new(
        library: &'static Library,
        program: Program,
        server: Server,
        observer: Arc<Process>,
        needs: &[Claim],
    ) -> Self {
        Self {
            library,
            program,
            url: server.url(),
            ends_uncertain: needs.contains(&Claim::Clock),
            observer: Mutex::new(Some(observer)),
            server: Some(server),
        }
    }

    async fn peer(&self, namespace: &str, route: &Route) -> Peer {
        let url = self.url_by(route).await;
        let program = started_with(&self.program, self.library, &url);
        let (process, _) = Process::start(&program)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.library.name));
        self.of_process(process, namespace, url)
    }

    fn of_process(&self, process: Arc<Process>, namespace: &str, url: String) -> Peer {
        Peer {
            process,
            view: View {
                store: self.library.store,
                url,
            },
            namespace: namespace.to_owned(),
            capabilities: capabilities(self.library),
            ends_uncertain: self.ends_uncertain,
            tries: self.library.claims_all(&[Claim::Tries]),
        }
    }

    async fn url_by(&self, route: &Route) -> String {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let server = host.parse().unwrap_or_else(|error| panic!("{}: {error}", self.url));
        self.url.replacen(host, &route.resolve(server).await.to_string(), 1)
    }
}

/// The command of a client at this address.
pub(crate) fn started_with(program: &Program, library: &Library, url: &str) -> Program {
    let ttl = TTL.as_millis().to_string();
    program.clone().argument(library.name).argument(url).argument(ttl)
}

fn capabilities(library: &Library) -> Capabilities {
    let mut capabilities = Capabilities::default();
    for (claim, _) in library.claims {
        capabilities = match claim {
            Claim::Extends => capabilities.extend(),
            Claim::Fixed => capabilities.fixed_lease(),
            Claim::Order => capabilities.fifo(),
            _ => capabilities,
        };
    }
    capabilities
}

#[async_trait]
impl Harness for PeerHarness {
    async fn start(_: ServerUse) -> Result<Self, NoServer> {
        Err(NoServer::Missing("the runner starts the server".to_owned()))
    }

    fn attach(address: &str) -> Self {
        let address: Address = serde_json::from_str(address).expect("the parent wrote it");
        Self {
            library: libraries::named(&address.library).expect("the parent knows it"),
            program: Program {
                path: address.path.into(),
                arguments: address.arguments.into_iter().map(Into::into).collect(),
                environment: address
                    .environment
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
            },
            url: address.url,
            ends_uncertain: address.ends_uncertain,
            observer: Mutex::new(None),
            server: None,
        }
    }

    fn address(&self) -> Option<String> {
        let text = |text: &std::ffi::OsString| text.to_string_lossy().into_owned();
        let environment = self.program.environment.iter();
        let address = Address {
            library: self.library.name.to_owned(),
            url: self.url.clone(),
            ends_uncertain: self.ends_uncertain,
            path: self.program.path.to_string_lossy().into_owned(),
            arguments: self.program.arguments.iter().map(text).collect(),
            environment: environment.map(|(name, value)| (text(name), text(value))).collect(),
        };
        serde_json::to_string(&address).ok()
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(TTL).with_tick(Duration::from_millis(500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(self.peer(namespace, route).await)
    }

    async fn observer(&self, namespace: &str) -> Arc<dyn Subject> {
        let ready = self.observer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match ready {
            Some(process) => Arc::new(self.of_process(process, namespace, self.url.clone())),
            None => self.subject(namespace, &Route::Direct).await,
        }
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let view = View {
            store: self.library.store,
            url: self.url.clone(),
        };
        view.take_away(namespace, name).await;
    }

    async fn restart(&self, data: Data) {
        let server = self.server.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart the server");
    }

    fn auxiliary_names(&self, _: &str, _: &str) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl BackendHarness for PeerHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        Arc::new(PeerBackend(self.peer(namespace, route).await))
    }
}
