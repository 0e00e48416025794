//! Every kind of server, through every control. Needs the servers: `cargo xtask servers --install`.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use sqlx::{Connection, Executor, MySqlConnection, Row};
use testbed::{Edition, Error, MariaDb, PgBouncer, Postgres, Redis, Server, ZooKeeper};
use tokio::time::timeout;

/// Longer than anything takes on an overloaded machine.
const AT_MOST: Duration = testbed::steady::AT_MOST;

#[testbed::test]
async fn redis_keeps_what_it_acknowledged() {
    let server = Redis::new().start().await.expect("it starts");
    every_control(&server, Kind::Redis).await;
}

#[testbed::test]
async fn mariadb_keeps_what_it_acknowledged() {
    let server = MariaDb::new().start().await.expect("it starts");
    every_control(&server, Kind::MariaDb).await;
}

#[testbed::test]
async fn mysql_keeps_what_it_acknowledged() {
    if let Some(server) = testbed::skip_left_out(Edition::MySql9.start().await) {
        every_control(&server, Kind::MariaDb).await;
    }
}

#[testbed::test]
async fn postgres_keeps_what_it_acknowledged() {
    let server = Postgres::new().start().await.expect("it starts");
    every_control(&server, Kind::Postgres).await;
}

#[testbed::test]
async fn postgres_18_keeps_what_it_acknowledged() {
    if let Some(server) = testbed::skip_left_out(Edition::Postgres18.start().await) {
        every_control(&server, Kind::Postgres).await;
    }
}

#[testbed::test]
async fn pgbouncer_lends_a_connection_for_a_transaction() {
    let server = Postgres::new().start().await.expect("it starts");
    let pool = PgBouncer::of(server.port()).setting("default_pool_size", "1");
    let pool = pool.start().await.expect("it starts");
    let one = postgres(&pool.url()).await.expect("it lets us in");
    let two = postgres(&pool.url())
        .await
        .expect("it lets two in, with one connection");
    let backend = "SELECT pg_backend_pid()";
    let ask = async |client: &tokio_postgres::Client| match client.simple_query(backend).await {
        Ok(rows) => rows.into_iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        }),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(ask(&one).await, ask(&two).await);
    assert!(matches!(pool.kill(), Ok(())) && one.simple_query(backend).await.is_err());
}

#[testbed::test]
async fn options_of_the_command_line_win() {
    for edition in [Edition::MariaDb, Edition::MySql9] {
        let server = MariaDb::new()
            .edition(edition)
            .user("ann", "it's \\")
            .option("--sql-mode=NO_BACKSLASH_ESCAPES")
            .option("--max-connections=77")
            // A MySQL takes this one only for a new data directory.
            .option("--lower-case-table-names=1");
        let Some(server) = testbed::skip_left_out(server.start().await) else {
            return;
        };
        let mut connection = MySqlConnection::connect(&server.url()).await.expect("it lets her in");
        let ask = "SELECT CONCAT(@@global.sql_mode, ' ', @@max_connections, ' ', @@lower_case_table_names)";
        let row = connection.fetch_one(ask).await.expect("it answers");
        assert_eq!(row.get::<String, _>(0), "NO_BACKSLASH_ESCAPES 77 1");
    }
}

#[testbed::test]
async fn zookeeper_keeps_what_it_acknowledged() {
    let server = ZooKeeper::new().start().await.expect("it starts");
    every_control(&server, Kind::ZooKeeper).await;
}

async fn every_control(server: &Server, kind: Kind) {
    let port = server.port();
    kind.write(server).await;
    assert!(kind.read(server).await.expect("it answers"));

    server.kill().expect("it is ours");
    assert!(is_closed(port), "a killed server has no socket");
    server.kill().expect("killing twice is no error");
    assert!(matches!(server.pause(), Err(Error::NotRunning { .. })));

    server.restart().await.expect("it starts again");
    assert_eq!(server.port(), port);
    assert!(
        kind.read(server).await.expect("it answers"),
        "an acknowledged write is lost"
    );

    server.pause().expect("it runs");
    let answer = timeout(Duration::from_millis(300), kind.read(server)).await;
    assert!(!matches!(answer, Ok(Ok(_))), "a paused server answered");
    server.resume().expect("it runs");
    assert!(kind.read(server).await.expect("it answers"));

    server.pause().expect("it runs");
    server
        .restart_without_data()
        .await
        .expect("it starts again, although it was paused");
    assert!(!kind.read(server).await.expect("it answers"), "old data is still there");

    let other = server.clone();
    drop(server.clone());
    assert!(!is_closed(other.port()), "it lives as long as any clone");
}

#[testbed::test]
async fn dropping_the_last_clone_ends_it() {
    let server = Redis::new().start().await.expect("it starts");
    let port = server.port();
    drop(server);
    assert!(is_closed(port));
}

#[testbed::test]
async fn credentials_are_asked_for() {
    let server = Redis::new().password("p@ss word").start().await.expect("it starts");
    Kind::Redis.write(&server).await;
    let wrong = format!("redis://:wrong@{}", server.address());
    let error = redis_command::<()>(&wrong, &["PING"])
        .await
        .expect_err("the password is wrong");
    assert_eq!(error.kind(), redis::ErrorKind::AuthenticationFailed, "{error}");

    let server = MariaDb::new()
        .user("ann", "it's \\")
        .database("shop")
        .start()
        .await
        .expect("it starts");
    Kind::MariaDb.write(&server).await;
    let wrong = format!("mysql://ann:wrong@{}/shop", server.address());
    let error = MySqlConnection::connect(&wrong)
        .await
        .expect_err("the password is wrong");
    assert!(error.to_string().contains("Access denied"), "{error}");

    let server = Postgres::new()
        .user("ann", "it's \\")
        .database("shop")
        .setting("max_connections", "77")
        .start()
        .await
        .expect("it starts");
    Kind::Postgres.write(&server).await;
    let wrong = format!("postgres://ann:wrong@{}/shop", server.address());
    let error = postgres(&wrong).await.map(drop).expect_err("the password is wrong");
    let code = error.code().map(tokio_postgres::error::SqlState::code);
    assert_eq!(code, Some("28P01"), "{error}");
    let client = postgres(&server.url()).await.expect("it lets her in");
    let row = client.query_one("SHOW max_connections", &[]).await.expect("it answers");
    assert_eq!(row.get::<_, String>(0), "77");
}

#[testbed::test]
async fn many_start_at_once() {
    let starts: Vec<_> = (0..8).map(|_| tokio::spawn(Redis::new().start())).collect();
    let mut servers = Vec::new();
    for start in starts {
        servers.push(start.await.expect("no panic").expect("it starts"));
    }
    let mut ports: Vec<u16> = servers.iter().map(Server::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
}

#[testbed::test]
async fn a_port_taken_while_it_was_down_is_an_error_and_no_confusion() {
    let server = Redis::new().start().await.expect("it starts");
    server.kill().expect("it is ours");
    let thief = TcpListener::bind((Ipv4Addr::LOCALHOST, server.port())).expect("the server is gone");
    let error = server.restart().await.expect_err("the port is taken");
    assert!(error.to_string().contains("Address already in use"), "{error}");
    drop(thief);
    server.restart().await.expect("the port is free again");
}

#[derive(Clone, Copy)]
enum Kind {
    Redis,
    MariaDb,
    ZooKeeper,
    Postgres,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

impl Kind {
    async fn write(self, server: &Server) {
        self.try_write(&server.url()).await.expect("it takes a write");
    }

    async fn try_write(self, url: &str) -> Outcome<()> {
        match self {
            Self::Redis => redis_command(url, &["SET", "marker", "1"]).await?,
            Self::MariaDb => {
                let mut connection = MySqlConnection::connect(url).await?;
                connection.execute("CREATE TABLE marker (id INT)").await?;
                connection.execute("INSERT INTO marker VALUES (1)").await?;
            }
            Self::ZooKeeper => {
                let persistent =
                    zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
                zookeeper(url).await?.create("/marker", b"1", &persistent).await?;
            }
            Self::Postgres => {
                let client = postgres(url).await?;
                client.batch_execute("CREATE TABLE marker (id INT)").await?;
                client.batch_execute("INSERT INTO marker VALUES (1)").await?;
            }
        }
        Ok(())
    }

    /// Whether what was written is there.
    async fn read(self, server: &Server) -> Outcome<bool> {
        let url = server.url();
        Ok(match self {
            Self::Redis => redis_command(&url, &["EXISTS", "marker"]).await?,
            Self::MariaDb => {
                let mut connection = MySqlConnection::connect(&url).await?;
                let tables = connection.fetch_all("SHOW TABLES LIKE 'marker'").await?;
                !tables.is_empty() && connection.fetch_all("SELECT id FROM marker").await?.len() == 1
            }
            Self::ZooKeeper => zookeeper(&url).await?.check_stat("/marker").await?.is_some(),
            Self::Postgres => {
                let client = postgres(&url).await?;
                let table = client
                    .query_one("SELECT to_regclass('marker') IS NOT NULL", &[])
                    .await?;
                table.get::<_, bool>(0) && client.query("SELECT id FROM marker", &[]).await?.len() == 1
            }
        })
    }
}

async fn redis_command<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> redis::RedisResult<T> {
    // The driver's defaults are a second to connect and half a second for an answer.
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(AT_MOST))
        .set_response_timeout(Some(AT_MOST));
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(&mut connection).await
}

async fn zookeeper(url: &str) -> Result<zookeeper_client::Client, zookeeper_client::Error> {
    let address = url.trim_start_matches("zookeeper://").trim_end_matches("/?acl=open");
    zookeeper_client::Client::connect(address).await
}

async fn postgres(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    // It ends with its client.
    tokio::spawn(connection);
    Ok(client)
}

fn is_closed(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
}
