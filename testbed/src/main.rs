//! Starts test servers by hand: `cargo run -p testbed -- redis mariadb zookeeper`.
//!
//! Prints their URLs, then obeys lines on its standard input: `kill`, `pause`, `resume`, `restart`,
//! `restart-without-data`, each for all of them. Ends them when the input ends.

#![forbid(unsafe_code)]

use std::io::BufRead;
use std::process::ExitCode;

use testbed::{Edition, Error, Server, ZooKeeper};

#[tokio::main]
async fn main() -> ExitCode {
    let mut servers = Vec::new();
    for kind in std::env::args().skip(1) {
        match start(&kind).await {
            Some(Ok(server)) => {
                println!("{}", server.url());
                servers.push(server);
            }
            Some(Err(error)) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
            None => {
                eprintln!("error: {kind:?} is none of redis, redis8, valkey9, mariadb, mysql9, zookeeper");
                return ExitCode::FAILURE;
            }
        }
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        for server in &servers {
            match obey(server, line.trim()).await {
                Some(Ok(())) => println!("{} {}", line.trim(), server.url()),
                Some(Err(error)) => println!("error: {error}"),
                None => println!("{line:?} is none of kill, pause, resume, restart, restart-without-data"),
            }
        }
    }
    ExitCode::SUCCESS
}

async fn start(kind: &str) -> Option<Result<Server, Error>> {
    if kind == "zookeeper" {
        return Some(ZooKeeper::new().start().await);
    }
    let edition = Edition::ALL.into_iter().find(|edition| edition.name() == kind)?;
    Some(edition.start().await)
}

async fn obey(server: &Server, command: &str) -> Option<Result<(), Error>> {
    Some(match command {
        "kill" => server.kill(),
        "pause" => server.pause(),
        "resume" => server.resume(),
        "restart" => server.restart().await,
        "restart-without-data" => server.restart_without_data().await,
        _ => return None,
    })
}
