//! The suite on row locks: on a MariaDB and on a MySQL. The clients are of a user who may SELECT, INSERT and UPDATE alone;
//! `migrate` makes their tables beforehand.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_mysql::sqlx::mysql::MySqlConnection;
use lock_mysql::sqlx::{AssertSqlSafe, Connection, Executor, Row, query, raw_sql};
use lock_mysql::{MySqlConfig, RowLockBackend, schema};
use testbed::{Certificates, Edition, MariaDb, Server};
use tokio::sync::{Mutex, OnceCell};

use super::servers::{CONNECT, UNHURRIED};

/// Which server.
pub(crate) trait Which: Debug + Send + Sync + 'static {
    fn server() -> MariaDb;

    /// The one that cases share.
    fn shared() -> &'static OnceCell<Server>;
}

macro_rules! which {
    ($name:ident, $server:expr) => {
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Which for $name {
            fn server() -> MariaDb {
                $server
            }

            fn shared() -> &'static OnceCell<Server> {
                static SHARED: OnceCell<Server> = OnceCell::const_new();
                &SHARED
            }
        }
    };
}

which!(OwnMariaDb, MariaDb::new());
which!(OverTls, MariaDb::new().tls(certificates()));
which!(MySql9, MariaDb::new().edition(Edition::MySql9));
which!(Hostile, hostile(Edition::MariaDb));
which!(MySql9Hostile, hostile(Edition::MySql9));

fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| Certificates::new().expect("certificates"))
}

/// A server with settings that somebody else may need, and that a lock must not depend on.
fn hostile(edition: Edition) -> MariaDb {
    let both = [
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
        "--autocommit=0",
        "--transaction-isolation=SERIALIZABLE",
        "--completion-type=CHAIN",
        "--default-time-zone=+05:30",
        "--lower-case-table-names=1",
        "--innodb-rollback-on-timeout",
    ];
    let more: &[&str] = match edition {
        Edition::MariaDb => &["--idle-transaction-timeout=2", "--max-statement-time=1"],
        _ => &[],
    };
    let options = both.iter().chain(more);
    options.fold(MariaDb::new().edition(edition), |server, option| server.option(*option))
}

/// The same configuration with the time limits for this route.
pub(crate) fn with_limits(config: MySqlConfig, route: &Route) -> MySqlConfig {
    match route {
        Route::Direct => config.with_connect_timeout(UNHURRIED).with_response_timeout(UNHURRIED),
        _ => config.with_connect_timeout(CONNECT),
    }
}

#[derive(Debug)]
pub(crate) struct RowLockHarness<W> {
    /// As a user who may do everything.
    url: String,
    /// The tables that were made.
    migrated: Mutex<BTreeSet<String>>,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

#[async_trait]
impl<W: Which> Harness for RowLockHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let server = super::servers::server_for(server, W::shared(), || W::server().start()).await?;
        let harness = Self {
            url: server.url(),
            migrated: Mutex::default(),
            server: Some(server),
            which: PhantomData,
        };
        harness.create_user().await;
        Ok(harness)
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            migrated: Mutex::default(),
            server: None,
            which: PhantomData,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        // The server's timeouts count whole seconds.
        Timing::default()
            .with_ttl(Duration::from_secs(3))
            .with_tick(Duration::from_secs(1))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    /// There is no other way than through the connection: it is the hold.
    async fn take_away(&self, namespace: &str, name: &str) {
        let mut connection = MySqlConnection::connect(&self.url)
            .await
            .expect("connect to the server");
        connection
            .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            .await
            .expect("read what is not committed");
        // Readers have rows of their own.
        let find = format!(
            "SELECT connection FROM {namespace} WHERE connection<>0 \
             AND (name=? OR LEFT(name,33)=CONCAT(x'ff',UNHEX(SHA2(?,256))))"
        );
        let mut holders = async || {
            let rows = query(AssertSqlSafe(find.clone()))
                .bind(name.as_bytes())
                .bind(name.as_bytes())
                .fetch_all(&mut connection)
                .await;
            let rows = rows.expect("the lock's rows");
            rows.iter().map(|row| row.get(0)).collect::<BTreeSet<u64>>()
        };
        let taken = holders().await;
        assert!(!taken.is_empty(), "nobody holds {name:?}");
        let mut killing = MySqlConnection::connect(&self.url)
            .await
            .expect("connect to the server");
        for holder in &taken {
            let kill = format!("KILL CONNECTION {holder}");
            killing
                .execute(AssertSqlSafe(kill))
                .await
                .expect("end the holder's connection");
        }
        // The server answers a KILL before it has rolled the transaction back: until then the hold is still there.
        while !taken.is_disjoint(&holders().await) {
            tokio::task::yield_now().await;
        }
    }

    async fn restart(&self, data: Data) {
        let server = self.server.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart the server");
        if data == Data::Lost {
            self.create_user().await;
            let lost = std::mem::take(&mut *self.migrated.lock().await);
            for table in lost {
                self.migrate(&table).await;
            }
        }
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        vec![
            format!("{namespace}.{name}"),
            format!("{namespace}_tokens"),
            format!("x'{name}'"),
            format!("{name} "),
            format!("{name}\0"),
            name.to_uppercase() + "_",
        ]
    }
}

const USER: &str = "least";
const PASSWORD: &str = "s3cret";

impl<W> RowLockHarness<W> {
    async fn create_user(&self) {
        let mut connection = MySqlConnection::connect(&self.url)
            .await
            .expect("connect to the server");
        let create = format!(
            "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\
             SET @grant=CONCAT('GRANT SELECT, INSERT, UPDATE ON `',DATABASE(),'`.* TO `{USER}`@`%`');\
             PREPARE grant_least FROM @grant; EXECUTE grant_least"
        );
        raw_sql(AssertSqlSafe(create))
            .execute(&mut connection)
            .await
            .expect("create a user");
    }

    async fn migrate(&self, table: &str) {
        // Kept locked, so that nobody uses the tables before they are made.
        let mut migrated = self.migrated.lock().await;
        if migrated.insert(table.to_owned()) {
            let config = MySqlConfig::from_url(&self.url)
                .expect("testbed's URL")
                .with_table(table)
                // The server makes the tables of twenty tests one after the other.
                .with_response_timeout(Duration::from_secs(60));
            schema::migrate(&config).await.expect("make the tables");
        }
    }
}

#[async_trait]
impl<W: Which> BackendHarness for RowLockHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        self.migrate(namespace).await;
        let url = super::servers::url_by(route, &self.url).await;
        let config = MySqlConfig::from_url(&url)
            .expect("testbed's URL")
            .with_user(USER)
            .with_password(PASSWORD)
            .with_table(namespace);
        Arc::new(RowLockBackend::new(with_limits(config, route)).expect("a valid configuration"))
    }
}
