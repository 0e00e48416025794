//! The suite on the lease tables of a PostgreSQL.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_postgres::{LeaseTableBackend, PostgresConfig, tokio_postgres};
use testbed::{Postgres, Server};
use tokio::sync::OnceCell;

use super::servers::UNHURRIED;

/// Which PostgreSQL, and how clients reach it.
pub(crate) trait Which: std::fmt::Debug + Send + Sync + 'static {
    fn server() -> Postgres;
    fn shared() -> &'static OnceCell<Server>;
}

/// The distribution's own.
#[derive(Debug)]
pub(crate) struct OwnPostgres;

impl Which for OwnPostgres {
    fn server() -> Postgres {
        Postgres::new()
    }

    fn shared() -> &'static OnceCell<Server> {
        static SERVER: OnceCell<Server> = OnceCell::const_new();
        &SERVER
    }
}

/// One with other defaults than a lock may depend on.
#[derive(Debug)]
pub(crate) struct HostilePostgres;

impl Which for HostilePostgres {
    fn server() -> Postgres {
        Postgres::new().hostile()
    }

    fn shared() -> &'static OnceCell<Server> {
        static SERVER: OnceCell<Server> = OnceCell::const_new();
        &SERVER
    }
}

#[derive(Debug)]
pub(crate) struct PostgresHarness<W> {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

#[async_trait]
impl<W: Which> Harness for PostgresHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let server = super::servers::server_for(server, W::shared(), || W::server().start()).await?;
        Ok(Self {
            url: server.url(),
            server: Some(server),
            which: PhantomData,
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            server: None,
            which: PhantomData,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await, route)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let sql = format!(
            "UPDATE {namespace}_leases SET holder=NULL,expires=statement_timestamp() \
             WHERE name=$1 AND expires>statement_timestamp()"
        );
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .expect("connect to the server");
        let settings = "SET default_transaction_read_only=off;SET default_transaction_isolation='read committed'";
        let ended = async {
            client.batch_execute(settings).await.expect("write");
            client.execute(&sql, &[&name.as_bytes()]).await.expect("end the hold")
        };
        let ended = tokio::select! {
            ended = ended => ended,
            _ = connection => panic!("the connection ended"),
        };
        assert_eq!(ended, 1, "nobody holds {name:?}");
    }

    async fn restart(&self, data: Data) {
        let server = self.server.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart the server");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        vec![
            format!("{namespace}.{name}"),
            format!("{namespace}_leases"),
            format!("{namespace}_holders"),
            format!("{namespace}_waiters"),
            format!("\\x{name}"),
            format!("{name} "),
            format!("{name}\0"),
            name.to_uppercase() + "_",
        ]
    }
}

#[async_trait]
impl<W: Which> BackendHarness for PostgresHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = super::servers::url_by(route, &self.url).await;
        let config = PostgresConfig::from_url(&url)
            .expect("testbed's URL")
            .with_table(namespace);
        let config = match route {
            Route::Direct => config.with_connect_timeout(UNHURRIED).with_response_timeout(UNHURRIED),
            _ => config,
        };
        Arc::new(LeaseTableBackend::new(config).expect("a valid configuration"))
    }
}
