//! PostgreSQL with what a test may ask of it. Needs the servers: `cargo xtask servers --install`.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testbed::{Certificates, PgBouncer, Postgres, in_some_run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};
use tokio_rustls::TlsConnector;

#[testbed::test]
async fn it_demands_tls_and_a_certificate_of_the_client() {
    let certificates = Certificates::new().expect("certificates");
    let server = Postgres::new().tls(&certificates).start().await.expect("it starts");
    assert!(server.url().contains("tls=true&ca="), "{}", server.url());
    let config = config().port(server.port()).to_owned();

    let error = config.connect(NoTls).await.map(drop).expect_err("without TLS");
    assert_eq!(code(&error), "28000", "{error:?}");
    let error = over_tls(&config, &certificates, false)
        .await
        .expect_err("without a certificate");
    assert_eq!(code(&error), "28000", "{error:?}");
    connect(&format!("postgres://postgres@{}/app", server.address())).await;
    let client = over_tls(&config, &certificates, true).await.expect("with all");
    let ask = "SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(rows(&client, ask).await, ["t|/CN=client"]);
}

#[testbed::test]
async fn hostile_settings_are_in_force() {
    let server = Postgres::new().hostile().setting("max_connections", "10");
    let server = server.start().await.expect("it starts");
    // If the machine stands still for seconds, the server ends a connection as idle, or a statement as too long.
    in_some_run("a setting is not in force", async || {
        let found = refusal_and_answer(&connect(&server.url()).await).await?;
        let expected = ["57014", r"serializable|a\b|\001|24.11.2026 17:30:00 +0530|10"];
        (found == expected).then_some(()).ok_or(format!("{found:?}"))
    })
    .await;
    // It is ended after some seconds without a statement: then the driver's task ends, too.
    let (idle, connection) = tokio_postgres::connect(&server.url(), NoTls)
        .await
        .expect("it lets us in");
    let error = connection.await.expect_err("it was idle");
    assert_eq!(code(&error), "57P05");
    drop(idle);
}

#[testbed::test]
async fn a_role_may_only_what_is_granted() {
    let server = Postgres::new()
        .role("least", "it's \\")
        .start()
        .await
        .expect("it starts");
    let owner = connect(&server.url()).await;
    owner.batch_execute("CREATE TABLE t (id int)").await.expect("a table");
    let config = config()
        .port(server.port())
        .user("least")
        .password("it's \\")
        .to_owned();
    let (least, connection) = config.connect(NoTls).await.expect("it lets it in");
    tokio::spawn(connection);
    for refused in ["CREATE TABLE u (id int)", "SELECT * FROM t", "DELETE FROM t"] {
        let error = least.batch_execute(refused).await.expect_err(refused);
        assert_eq!(code(&error), "42501", "{refused}");
    }
    owner
        .batch_execute("GRANT SELECT ON t TO least")
        .await
        .expect("a grant");
    least.batch_execute("SELECT * FROM t").await.expect("it may");

    // And through a pooler, which logs in with the same password.
    let pool = PgBouncer::of(server.port()).user("least", "it's \\");
    let pool = pool.start().await.expect("it starts");
    let pooled = connect(&pool.url()).await;
    assert_eq!(rows(&pooled, "SELECT current_user").await, ["least"]);
    drop(server);
}

#[testbed::test]
async fn a_paused_server_answers_nobody_and_a_killed_one_is_gone() {
    let server = Postgres::new().start().await.expect("it starts");
    let client = connect(&server.url()).await;
    let pid = rows(&client, "SELECT pg_backend_pid()").await.concat();

    server.pause().expect("it runs");
    // Each connection has a process of its own.
    let answer = client.simple_query("SELECT 1");
    tokio::pin!(answer);
    assert!(
        timeout(Duration::from_millis(300), &mut answer).await.is_err(),
        "it answered"
    );
    server.resume().expect("it runs");
    answer.await.expect("it goes on");

    let other = connect(&server.url()).await;
    let ended = format!("SELECT pg_terminate_backend({pid}, 60000)");
    assert_eq!(rows(&other, &ended).await, ["t"], "others can end it");
    assert!(client.simple_query("SELECT 1").await.is_err());

    let pid = rows(&other, "SELECT pg_backend_pid()").await.concat();
    server.pause().expect("it runs");
    server.kill().expect("it is ours");
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[testbed::test]
async fn a_standby_follows_is_waited_for_and_promoted() {
    let servers = Postgres::new().start_replicated(1).await.expect("they start");
    let call = async |server, sql: &str| servers.call(server, sql).await.expect("an answer");
    call(0, "CREATE TABLE t (id int)").await;
    servers.set_synchronous(0, true).await.expect("it is waited for");
    call(0, "INSERT INTO t VALUES (1)").await;
    assert_eq!(call(1, "SELECT pg_is_in_recovery()").await, ["t"]);
    let error = servers
        .call(1, "INSERT INTO t VALUES (9)")
        .await
        .expect_err("a standby");
    assert!(error.to_string().contains("read-only"), "{error}");

    // A commit waits for a standby that does not answer, and is not lost with the primary.
    servers[1].pause().expect("it runs");
    let commit = servers.call(0, "INSERT INTO t VALUES (2)");
    assert!(
        timeout(Duration::from_millis(300), commit).await.is_err(),
        "nobody else has it"
    );
    servers[1].resume().expect("it runs");
    call(0, "INSERT INTO t VALUES (3)").await;
    servers[0].kill().expect("it is ours");
    servers.promote(1).await.expect("it takes over");
    assert_eq!(call(1, "SELECT id FROM t ORDER BY id").await, ["1", "2", "3"]);
    call(1, "INSERT INTO t VALUES (4)").await;

    // It knows nothing of its successor, and waits for a standby that has left.
    servers[0].restart().await.expect("it comes back");
    assert_eq!(call(0, "SELECT max(id), pg_is_in_recovery() FROM t").await, ["3|f"]);
    servers.follow(0, 1).await.expect("it follows");
    servers.set_synchronous(1, true).await.expect("it is waited for");
    call(1, "INSERT INTO t VALUES (5)").await;
    servers.set_synchronous(1, false).await.expect("it is not");
    servers[0].kill().expect("it is ours");
    call(1, "INSERT INTO t VALUES (6)").await;
    servers[0].restart().await.expect("it is a standby again");
    assert_eq!(call(0, "SELECT pg_is_in_recovery()").await, ["t"]);
}

/// The code with which a hostile server rejects a long statement, and what it answers to another one.
async fn refusal_and_answer(client: &Client) -> Result<[String; 2], String> {
    let refused = client.batch_execute("SELECT pg_sleep(60)").await;
    let too_long = refused.expect_err("too long");
    let ask = "SELECT current_setting('transaction_isolation'), 'a\\\\b', '\\\\x01'::bytea, \
               '2026-11-24 12:00:00Z'::timestamptz, current_setting('max_connections')";
    let rows = try_rows(client, ask).await.map_err(|error| error.to_string())?;
    Ok([code(&too_long).to_owned(), rows.join("\n")])
}

fn config() -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").user("app").password("secret").dbname("app");
    config
}

/// As libpq does it: the server is asked for TLS before anything else is said.
async fn over_tls(config: &Config, certificates: &Certificates, with_own: bool) -> Result<Client, Error> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(certificates.ca()).expect("an authority");
    roots.add(authority).expect("an authority");
    // Named, as other packages may bring another one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("it has them");
    let builder = builder.with_root_certificates(roots);
    let tls = match with_own {
        true => {
            let (certificate, key) = certificates.client();
            let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they fit")
        }
        false => builder.with_no_client_auth(),
    };
    let port = config.get_ports()[0];
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.expect("it reads");
    assert_eq!(stream.read_u8().await.expect("it answers"), b'S');
    let name = "localhost".try_into().expect("a name");
    let stream = TlsConnector::from(Arc::new(tls))
        .connect(name, stream)
        .await
        .expect("a handshake");
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it lets us in");
    // It ends with its client.
    tokio::spawn(connection);
    client
}

async fn rows(client: &Client, sql: &str) -> Vec<String> {
    try_rows(client, sql).await.expect(sql)
}

async fn try_rows(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let values: Vec<&str> = (0..row.len()).map(|at| row.get(at).unwrap_or("")).collect();
            Some(values.join("|"))
        }
        _ => None,
    });
    Ok(rows.collect())
}

fn code(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}
