//! The suite on lease tables: on a MariaDB and on a MySQL.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_mysql::sqlx::mysql::MySqlConnection;
use lock_mysql::sqlx::{AssertSqlSafe, Connection, query};
use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};
use testbed::Server;

use super::mysql_row::{Which, with_limits};
use super::quorum::Node;

#[derive(Debug)]
pub(crate) struct LeaseTableHarness<W> {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

#[async_trait]
impl<W: Which> Harness for LeaseTableHarness<W> {
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
        // The promise of the backend for any number of holds: the second connection, which renews, may still be dialled
        // when the line gets slow.
        Timing::default()
            .with_ttl(Duration::from_secs(3))
            .with_round_trip_percent(20)
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        assert!(self.end_hold(namespace, name).await, "nobody holds {name:?}");
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
            format!("{namespace}_lease_holders"),
            format!("x'{name}'"),
            format!("{name} "),
            format!("{name}\0"),
            name.to_uppercase() + "_",
        ]
    }
}

#[async_trait]
impl<W: Which> BackendHarness for LeaseTableHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = super::servers::url_by(route, &self.url).await;
        let config = MySqlConfig::from_url(&url)
            .expect("testbed's URL")
            .with_strategy(Strategy::Lease)
            .with_table(namespace);
        Arc::new(LeaseTableBackend::new(with_limits(config, route)).expect("a valid configuration"))
    }
}

#[async_trait]
impl<W: Which> Node for LeaseTableHarness<W> {
    async fn end_hold(&self, namespace: &str, name: &str) -> bool {
        let end = format!("UPDATE {namespace}_leases SET holder=NULL WHERE name=? AND holder IS NOT NULL");
        let mut attempts = 0;
        loop {
            let mut connection = MySqlConnection::connect(&self.url)
                .await
                .expect("connect to the server");
            // Not every server commits by itself.
            let mut tx = connection.begin().await.expect("begin");
            let ended = query(AssertSqlSafe(end.clone()))
                .bind(name.as_bytes())
                .execute(&mut *tx)
                .await;
            attempts += 1;
            match ended {
                Ok(ended) => {
                    tx.commit().await.expect("commit");
                    return ended.rows_affected() == 1;
                }
                // A hostile server ends a statement that takes a second, as any may on a busy machine.
                Err(_) if attempts < 5 => {}
                Err(error) => panic!("cannot end the hold: {error}"),
            }
        }
    }
}
