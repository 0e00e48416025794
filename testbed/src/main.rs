//! Starts test servers by hand: `cargo run -p testbed -- redis mariadb zookeeper ensemble cluster`.
//!
//! Prints their URLs, then obeys lines on its standard input: `kill`, `pause`, `resume`, `restart`,
//! `restart-without-data`, each for all of them. Ends them when the input ends.

#![forbid(unsafe_code)]

use std::io::BufRead;
use std::process::ExitCode;

use testbed::{Edition, Error, Redis, Server, ZooKeeper};

#[tokio::main]
async fn main() -> ExitCode {
    let mut servers = Vec::new();
    for kind in std::env::args().skip(1) {
        match start(&kind).await {
            Some(Ok(started)) => {
                for server in &started {
                    println!("{}", server.url());
                }
                servers.extend(started);
            }
            Some(Err(error)) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
            None => {
                eprintln!(
                    "error: {kind:?} is none of redis, redis8, valkey9, mariadb, mysql9, zookeeper, zookeeper39, postgres, postgres18, \
                     ensemble, cluster"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        // All at once: a server of an ensemble needs another one to serve.
        let obeying: Vec<_> = servers
            .iter()
            .map(|server| tokio::spawn(obey(server.clone(), line.trim().into())))
            .collect();
        for (server, obeyed) in servers.iter().zip(obeying) {
            match obeyed.await.expect("it does not panic") {
                Some(Ok(())) => println!("{} {}", line.trim(), server.url()),
                Some(Err(error)) => println!("error: {error}"),
                None => println!("{line:?} is none of kill, pause, resume, restart, restart-without-data"),
            }
        }
    }
    ExitCode::SUCCESS
}

async fn start(kind: &str) -> Option<Result<Vec<Server>, Error>> {
    if kind == "ensemble" {
        let ensemble = ZooKeeper::new().start_ensemble().await;
        return Some(ensemble.map(|ensemble| ensemble.servers().to_vec()));
    }
    if kind == "cluster" {
        let cluster = Redis::new().start_cluster(true).await;
        return Some(cluster.map(|cluster| cluster.nodes().to_vec()));
    }
    let edition = Edition::ALL.into_iter().find(|edition| edition.name() == kind)?;
    Some(edition.start().await.map(|server| vec![server]))
}

async fn obey(server: Server, command: String) -> Option<Result<(), Error>> {
    Some(match command.as_str() {
        "kill" => server.kill(),
        "pause" => server.pause(),
        "resume" => server.resume(),
        "restart" => server.restart().await,
        "restart-without-data" => server.restart_without_data().await,
        _ => return None,
    })
}
