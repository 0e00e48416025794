//! A quorum whose list names one server twice, by what the server says of itself.

use lock_mysql::sqlx::mysql::MySqlConnection;
use lock_mysql::sqlx::{Connection, raw_sql};
use polylock::ErrorKind;
use testbed::{Edition, MariaDb, Server, ZooKeeper, eventually};

/// Three nodes, of which the first and the last are one server. A node that is slow to connect, as one is that makes its tables first,
/// is not waited for: it is compared at the next start. So is one whose answer comes too late on a busy machine.
async fn is_refused(list: &[String; 3]) {
    const STARTS: u32 = 20;
    let url = format!("quorum:{}", list.join("|"));
    for _ in 0..STARTS {
        match polylock::connect(&url).await {
            Ok(locks) => locks.shutdown().await.expect("it ends"),
            Err(error) if error.is_retryable() => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
                let line = error.to_string();
                assert!(line.contains("nodes 1 and 3 are the same server"), "{url}: {line}");
                return;
            }
        }
    }
    panic!("{url} was never refused");
}

async fn connects(list: &[String; 3]) {
    let url = format!("quorum:{}", list.join("|"));
    let locks = eventually("enough nodes answer in time", async || {
        match polylock::connect(&url).await {
            Err(error) if error.is_retryable() => Err(error),
            other => Ok(other),
        }
    });
    let locks = locks.await.expect("three servers");
    locks.shutdown().await.expect("it ends");
}

/// Its database `other` as well.
async fn database(server: &Server) -> String {
    let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
    let created = raw_sql("CREATE DATABASE IF NOT EXISTS other")
        .execute(&mut connection)
        .await;
    created.expect("another database");
    let url = server.url();
    let (base, _) = url.rsplit_once('/').expect("a database");
    format!("{base}/other?strategy=lease")
}

async fn databases_are_one_server(edition: Edition) {
    let start = || async { MariaDb::new().edition(edition).start().await };
    let Some(one) = testbed::skip_left_out(start().await) else {
        return;
    };
    let (other, third) = (start().await.expect("a server"), start().await.expect("a server"));
    if testbed::skip_external([&one]) {
        return;
    }
    let leases = |server: &Server| format!("{}?strategy=lease", server.url());
    is_refused(&[leases(&one), leases(&other), database(&one).await]).await;
    is_refused(&[leases(&one), leases(&other), format!("{}&table=other", leases(&one))]).await;
    connects(&[leases(&one), leases(&other), leases(&third)]).await;
}

#[testbed::test]
async fn two_databases_of_one_mariadb_are_one_server() {
    databases_are_one_server(Edition::MariaDb).await;
}

#[testbed::test]
async fn two_databases_of_one_mysql_are_one_server() {
    databases_are_one_server(Edition::MySql9).await;
}

fn path(address: &str, path: &str) -> String {
    format!("zookeeper://{address}/{path}?acl=open")
}

#[testbed::test]
async fn two_paths_of_one_zookeeper_are_one_server() {
    let start = || async { ZooKeeper::new().start().await.expect("a server") };
    let (one, other, third) = tokio::join!(start(), start(), start());
    if testbed::skip_external([&one]) {
        return;
    }
    let of = |server: &Server, root: &str| path(server.address(), root);
    is_refused(&[of(&one, "a"), of(&other, "a"), of(&one, "b")]).await;
    is_refused(&[of(&one, "a"), of(&other, "a"), of(&one, "a/b")]).await;
    connects(&[of(&one, "a"), of(&other, "a"), of(&third, "a")]).await;
}

/// Whichever of its servers the two nodes name.
#[testbed::test]
async fn two_servers_of_one_ensemble_are_one_server() {
    let ensemble = ZooKeeper::new().start_ensemble().await.expect("an ensemble");
    let other = ZooKeeper::new().start().await.expect("a server");
    let [one, _, third] = ensemble.addresses();
    is_refused(&[path(one, "a"), path(other.address(), "a"), path(third, "b")]).await;
}
