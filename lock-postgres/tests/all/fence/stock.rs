//! A stock of ten items in a schema of the test's own, beside a fence of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::backend::HolderId;
use lock_postgres::tokio_postgres::{self, Client, NoTls, Transaction};
use lock_postgres::{Fence, schema};
use testbed::{Postgres, Server, eventually};
use tokio::sync::OnceCell;

pub(crate) struct Stock {
    server: Server,
    pub(crate) schema: String,
    pub(crate) fence: Fence,
}

impl Stock {
    /// On the server that all tests share.
    pub(crate) async fn new() -> Self {
        Self::on(shared_server().await).await
    }

    pub(crate) async fn on(server: &Server) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The server may be one that ran before, with the tables of an earlier run.
        let schema = format!("stock_{}_{number}", &HolderId::random().to_string()[..8]);
        let client = connect(&server.url()).await;
        let fences = schema::fences(Some(&schema), "x").unwrap();
        let sql = format!(
            "CREATE SCHEMA {schema}; {fences} ALTER TABLE {schema}.x_fences RENAME TO fences;\
             CREATE TABLE {schema}.stock (id int PRIMARY KEY, amount bigint NOT NULL);\
             INSERT INTO {schema}.stock VALUES (1, 10), (2, 10)"
        );
        client.batch_execute(&sql).await.unwrap();
        let fence = Fence::in_table(Some(&schema), "fences").unwrap();
        let server = server.clone();
        Self { server, schema, fence }
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.server.url()).await
    }

    pub(crate) async fn read(&self, tx: &Transaction<'_>) -> i64 {
        let sql = format!("SELECT amount FROM {}.stock WHERE id = 1", self.schema);
        tx.query_one(&sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn write(&self, tx: &Transaction<'_>, amount: i64) {
        let sql = format!("UPDATE {}.stock SET amount = $1 WHERE id = 1", self.schema);
        tx.execute(&sql, &[&amount]).await.unwrap();
    }

    /// What is committed.
    pub(crate) async fn left(&self) -> i64 {
        let mut client = self.connect().await;
        let tx = client.transaction().await.unwrap();
        self.read(&tx).await
    }

    /// Returns when a statement on a table of this schema waits for a lock.
    pub(crate) async fn until_somebody_waits(&self) {
        let client = self.connect().await;
        let ask = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
        eventually("a statement waits for a lock", async || {
            !client.query(ask, &[&self.schema]).await.unwrap().is_empty()
        })
        .await;
    }
}

pub(crate) async fn shared_server() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER
        .get_or_init(|| async { Postgres::new().start().await.unwrap() })
        .await
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // It ends with its client.
    tokio::spawn(connection);
    client
}
