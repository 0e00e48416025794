//! The suite on a PostgreSQL, also behind a PgBouncer that lends its connections for a transaction, and with a standby that is named
//! first. The clients are of a user with the least permissions; `migrate` makes their tables beforehand.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_postgres::tokio_postgres::{Client, NoTls};
use lock_postgres::{Pooler, PostgresConfig, Strategy, schema};
use testbed::{Certificates, Edition, Error, PgBouncer, Postgres, Server, Standbys};
use tokio::sync::{Mutex, OnceCell};

use super::quorum::Node;
use super::servers::{self, CONNECT, Started, UNHURRIED};

/// Which server.
pub(crate) trait Which: Debug + Send + Sync + 'static {
    fn server() -> Postgres;

    /// The other servers.
    const BESIDE: Beside = Beside::Nothing;

    const STRATEGY: Strategy = Strategy::Lease;

    /// The one that cases share.
    fn shared() -> &'static OnceCell<Servers>;
}

/// The servers besides a PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A PgBouncer before it.
    Pool,
    /// One that gives each client a connection of its own.
    PoolOfSessions,
    /// A PgBouncer, and waiters listen at the server itself.
    PoolAndListening,
    /// A standby, which the URL names first.
    Standby,
}

macro_rules! which {
    ($name:ident, $server:expr $(, beside $beside:ident)? $(, strategy $strategy:ident)?) => {
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Which for $name {
            fn server() -> Postgres {
                $server.role(USER, PASSWORD)
            }

            $(const BESIDE: Beside = Beside::$beside;)?

            $(const STRATEGY: Strategy = Strategy::$strategy;)?

            fn shared() -> &'static OnceCell<Servers> {
                static SHARED: OnceCell<Servers> = OnceCell::const_new();
                &SHARED
            }
        }
    };
}

which!(OwnPostgres, Postgres::new());
which!(OverTls, Postgres::new().tls(certificates()));
which!(Pooled, Postgres::new(), beside Pool);
which!(PooledListening, Postgres::new(), beside PoolAndListening);
which!(Hosts, Postgres::new(), beside Standby);
which!(Postgres18, Postgres::new().edition(Edition::Postgres18));
which!(Hostile, Postgres::new().hostile());
which!(Sessions, Postgres::new(), strategy Session);
which!(Sessions18, Postgres::new().edition(Edition::Postgres18).hostile(), strategy Session);
which!(PooledSessions, Postgres::new(), beside PoolOfSessions, strategy Session);

const USER: &str = "least";
const PASSWORD: &str = "s3cret";

fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| Certificates::new().expect("certificates"))
}

/// A PostgreSQL, and the PgBouncer before it or the standby behind it.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    postgres: Server,
    pool: Option<Server>,
    standbys: Option<Standbys>,
}

impl Started for Servers {
    fn external(&self) -> Option<&str> {
        self.postgres.external()
    }
}

impl Servers {
    async fn start<W: Which>() -> Result<Self, Error> {
        let standbys = match W::BESIDE {
            Beside::Standby => Some(W::server().start_replicated(1).await?),
            _ => None,
        };
        let postgres = match &standbys {
            Some(standbys) => standbys[0].clone(),
            None => W::server().start().await?,
        };
        // For each login by SCRAM it hashes a password for milliseconds, and does nothing else meanwhile.
        let pooler = PgBouncer::of(postgres.port())
            .user(USER, PASSWORD)
            .setting("auth_type", "md5");
        let pool = match W::BESIDE {
            Beside::Pool | Beside::PoolAndListening => {
                // PgBouncer's own default, and as many as there are cases at a time.
                Some(pooler.setting("default_pool_size", "20").start().await?)
            }
            Beside::PoolOfSessions => {
                let many = pooler
                    .setting("pool_mode", "session")
                    .setting("default_pool_size", "300");
                Some(many.start().await?)
            }
            Beside::Nothing | Beside::Standby => None,
        };
        Ok(Self {
            postgres,
            pool,
            standbys,
        })
    }

    /// Where clients connect, if not to the PostgreSQL alone.
    fn url_of_clients(&self) -> Option<String> {
        let url = self.postgres.url();
        let both = |standbys: &Standbys| {
            let hosts = format!("{},{}", standbys[1].address(), self.postgres.address());
            url.replacen(self.postgres.address(), &hosts, 1)
        };
        self.pool
            .as_ref()
            .map(Server::url)
            .or_else(|| self.standbys.as_ref().map(both))
    }
}

/// The session timeout, which is the TTL of every hold.
const SESSION: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct PostgresHarness<W> {
    /// As a user who may do everything.
    url: String,
    /// Where clients connect, if not there.
    clients: Option<String>,
    /// The tables that were made.
    migrated: Mutex<BTreeSet<String>>,
    /// `None` in a child process.
    servers: Option<Servers>,
    which: PhantomData<W>,
}

#[async_trait]
impl<W: Which> Harness for PostgresHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let servers = servers::server_for(server, W::shared(), Servers::start::<W>).await?;
        Ok(Self {
            url: servers.postgres.url(),
            clients: servers.url_of_clients(),
            migrated: Mutex::default(),
            servers: Some(servers),
            which: PhantomData,
        })
    }

    fn attach(address: &str) -> Self {
        let mut urls = address.split(' ').map(str::to_owned);
        Self {
            url: urls.next().expect("a split has a first part"),
            clients: urls.next(),
            migrated: Mutex::default(),
            servers: None,
            which: PhantomData,
        }
    }

    fn address(&self) -> Option<String> {
        let urls: Vec<&str> = [Some(&self.url), self.clients.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        Some(urls.join(" "))
    }

    fn timing(&self) -> Timing {
        // As on lease tables of MySQL.
        let timing = Timing::default()
            .with_ttl(Duration::from_secs(3))
            .with_round_trip_percent(20);
        match W::BESIDE {
            // On a busy machine, hundreds of requests over its connections take long.
            Beside::Pool => timing.with_patience(Duration::from_secs(50)),
            _ => timing,
        }
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        servers::subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        assert!(self.end_hold(namespace, name).await, "nobody holds {name:?}");
    }

    async fn restart(&self, data: Data) {
        let server = &self.servers.as_ref().expect("the parent restarts").postgres;
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart the server");
        if data == Data::Lost {
            let lost = std::mem::take(&mut *self.migrated.lock().await);
            for table in lost {
                self.migrate(&table).await;
            }
        }
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        vec![
            format!("{namespace}.{name}"),
            format!("{namespace}_leases"),
            format!("{namespace}_waiters"),
            format!("\\x{name}"),
            format!("{name} "),
            format!("{name}\0"),
            name.to_uppercase() + "_",
        ]
    }
}

impl<W: Which> PostgresHarness<W> {
    async fn migrate(&self, table: &str) {
        // Kept locked, so that nobody uses the tables before they are made.
        let mut migrated = self.migrated.lock().await;
        if !migrated.insert(table.to_owned()) {
            return;
        }
        let config = PostgresConfig::from_url(&self.url).expect("testbed's URL");
        // The server makes the tables of twenty tests one after the other.
        let config = config.with_table(table).with_response_timeout(Duration::from_secs(60));
        schema::migrate(&config).await.expect("make the tables");
        // What the page of the crate says.
        let (first, grant) = match W::STRATEGY {
            Strategy::Session => (
                "tokens",
                format!(
                    "GRANT SELECT, INSERT, UPDATE ON \"{table}_tokens\" TO {USER}; \
                     GRANT SELECT, INSERT, UPDATE, DELETE ON \"{table}_readers\" TO {USER}"
                ),
            ),
            _ => (
                "leases",
                format!(
                    "GRANT SELECT, INSERT, UPDATE ON \"{table}_leases\" TO {USER}; \
                     GRANT SELECT, INSERT, UPDATE, DELETE ON \"{table}_holders\", \"{table}_waiters\" TO {USER}"
                ),
            ),
        };
        // Of two grants on a table at the same time, as child processes would make them, the server refuses one.
        let grant = format!("BEGIN; LOCK TABLE \"{table}_{first}\" IN SHARE UPDATE EXCLUSIVE MODE; {grant}; COMMIT");
        self.owner().await.batch_execute(&grant).await.expect("grant");
    }

    /// A client that may do everything, and needs no TLS.
    async fn owner(&self) -> Client {
        let url = match self.url.split_once("?tls=true") {
            Some(_) => format!("postgres://postgres@{}/app", servers::hosts(&self.url)),
            None => self.url.clone(),
        };
        let (client, connection) = lock_postgres::tokio_postgres::connect(&url, NoTls)
            .await
            .expect("connect to the server");
        // It ends with its client.
        tokio::spawn(connection);
        // A grant must outlive a crash of the server.
        let writing = "SET statement_timeout = 0; SET lock_timeout = 0; SET synchronous_commit = on";
        client.batch_execute(writing).await.expect("prepare a client");
        client
    }
}

#[async_trait]
impl<W: Which> BackendHarness for PostgresHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        self.migrate(namespace).await;
        let config = async |url| {
            let url = servers::url_by(route, url).await;
            let config = PostgresConfig::from_url(&url).expect("testbed's URL");
            config.with_user(USER).with_password(PASSWORD).with_table(namespace)
        };
        let clients = config(self.clients.as_ref().unwrap_or(&self.url)).await;
        let clients = match W::BESIDE {
            Beside::Nothing | Beside::Standby => clients,
            Beside::Pool => clients.with_pooler(Pooler::Transaction),
            Beside::PoolOfSessions => clients.with_pooler(Pooler::Session),
            Beside::PoolAndListening => clients
                .with_pooler(Pooler::Transaction)
                .with_listen(config(&self.url).await),
        };
        let config = match W::STRATEGY {
            // No case needs a server that is older than its clients' sessions.
            Strategy::Session => clients
                .with_strategy(Strategy::Session)
                .with_session_timeout(SESSION)
                .with_restart_delay(Duration::ZERO),
            _ => clients,
        };
        let config = match route {
            Route::Direct => config.with_connect_timeout(UNHURRIED).with_response_timeout(UNHURRIED),
            _ => config.with_connect_timeout(CONNECT),
        };
        lock_postgres::backend(config).expect("a valid configuration")
    }
}

#[async_trait]
impl<W: Which> Node for PostgresHarness<W> {
    async fn end_hold(&self, namespace: &str, name: &str) -> bool {
        let owner = self.owner().await;
        if W::STRATEGY == Strategy::Session {
            return end_session(&owner, namespace, name).await;
        }
        let delete = format!("DELETE FROM \"{namespace}_holders\" WHERE name = $1");
        owner
            .execute(&delete, &[&name.as_bytes()])
            .await
            .expect("end the shares");
        let end = format!(
            "UPDATE \"{namespace}_leases\" SET holder = NULL, label = NULL, expires = statement_timestamp() \
             WHERE name = $1 AND expires > statement_timestamp()"
        );
        let ended = owner.execute(&end, &[&name.as_bytes()]).await;
        ended.expect("end the hold") == 1
    }
}

/// There is no other way than through the session: it is the hold. Returns when the server has ended it.
async fn end_session(owner: &Client, table: &str, name: &str) -> bool {
    let end = "WITH k AS (SELECT ('x'||substr(encode(sha256(convert_to('polylock','UTF8')||decode('00','hex')||convert_to('session','UTF8')\
         ||decode('00','hex')||convert_to('public','UTF8')||decode('00','hex')||convert_to($1,'UTF8')||decode('00','hex')||$2),'hex'),1,16))\
         ::bit(64)::bigint AS key) \
         SELECT pg_terminate_backend(pid,20000) FROM pg_locks,k WHERE locktype='advisory' AND granted \
         AND ((classid::bigint<<32)|objid::bigint)=key";
    let ended = owner.query(end, &[&table, &name.as_bytes()]).await;
    let ended = ended.expect("end the session");
    !ended.is_empty() && ended.iter().all(|row| row.get(0))
}
