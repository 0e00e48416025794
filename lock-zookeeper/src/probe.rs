//! Probes what answers at a server's address. On something that is no ZooKeeper, the driver only times out.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, ErrorKind};
use lock_kit::identify::{first_answer, is_tls, speaks_tls, wants_tls, wrong_server};
use tokio::time::{Instant, timeout_at};

use crate::config::{ZooKeeperConfig, host_and_port};

pub(crate) use self::guarantees::keeps;

mod guarantees;
#[cfg(feature = "tls")]
mod tls;

/// The beginning of the answer of a ZooKeeper that serves.
const VERSION: &[u8] = b"Zookeeper version";
/// The limit for the connection, and for the answer to either text.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// The kind of server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// A server without an ensemble: it counts every request as a sign of life.
    Standalone,
    /// A member of an ensemble, or a server that did not say what it is.
    PerhapsFollower,
}

/// What a probe of all servers has found.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    /// The servers that serve.
    pub(crate) serving: Vec<String>,
    /// The worst reason why there may be no session. It is an outage if any server serves.
    pub(crate) why: Option<Error>,
}

/// Probes all servers at the same time. Once one serves, the others have `grace` to answer, if it is set. After that they count as silent.
pub(crate) async fn diagnose(config: &ZooKeeperConfig, grace: Option<Duration>) -> Diagnosis {
    let servers = config.servers();
    let probes = servers.iter().enumerate();
    let probes = probes.map(|(at, server)| async move { (at, probe(config, server, ANSWER_LIMIT).await) });
    let mut probes: FuturesUnordered<_> = probes.collect();
    let mut answers: Vec<_> = servers.iter().map(|server| Err(silent(server))).collect();
    let mut end = None;
    loop {
        let answered = match end {
            Some(end) => timeout_at(end, probes.next()).await.ok().flatten(),
            None => probes.next().await,
        };
        let Some((at, answer)) = answered else {
            return sum_up(servers, answers);
        };
        if let (Ok(_), Some(grace), None) = (&answer, grace, end) {
            end = Some(Instant::now() + grace);
        }
        answers[at] = answer;
    }
}

fn sum_up(servers: &[String], answers: Vec<Result<ServerMode, Error>>) -> Diagnosis {
    let (mut serving, mut reasons) = (Vec::new(), Vec::new());
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok(_) => serving.push(server.clone()),
            Err(reason) => reasons.push(reason),
        }
    }
    let worst = reasons
        .iter()
        .position(|reason| reason.kind() != ErrorKind::Unavailable);
    let why = match worst.map(|worst| reasons.swap_remove(worst)) {
        Some(wrong) if !serving.is_empty() => {
            Some(Error::new(ErrorKind::Unavailable, "one of several servers is wrong").with_source(wrong))
        }
        Some(wrong) => Some(wrong),
        None => reasons.pop(),
    };
    Diagnosis { serving, why }
}

/// Standalone if the only server says so within twice `limit`.
pub(crate) async fn server_mode(config: &ZooKeeperConfig, limit: Duration) -> ServerMode {
    match config.servers() {
        [server] => probe(config, server, limit)
            .await
            .unwrap_or(ServerMode::PerhapsFollower),
        _ => ServerMode::PerhapsFollower,
    }
}

/// Asks the server at `address` for its mode. The error says why there may be no session with it.
async fn probe(config: &ZooKeeperConfig, address: &str, limit: Duration) -> Result<ServerMode, Error> {
    #[cfg(feature = "tls")]
    if let Some(tls) = config.tls() {
        return tls::probe(tls, address, limit).await;
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    let (host, port) = host_and_port(address);
    match first_answer(host, port, Duration::ZERO, limit).await {
        Ok(answer) if is_tls(&answer) => Err(wants_tls("ZooKeeper", &address)),
        Ok(answer) if answer.is_empty() => match speaks_tls(host, port, limit).await {
            true => Err(wants_tls("ZooKeeper", &address)),
            false => Err(silent(address)),
        },
        Ok(answer) => judge(address, &answer),
        // A server with TLS hangs up on a text.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && speaks_tls(host, port, limit).await => {
            Err(wants_tls("ZooKeeper", &address))
        }
        Err(error) => {
            let message = format!("cannot connect to {address}");
            Err(Error::new(ErrorKind::Unavailable, message).with_source(error))
        }
    }
}

fn silent(address: &str) -> Error {
    let message = format!("{address} accepts connections but does not answer");
    Error::new(ErrorKind::Unavailable, message)
}

fn judge(address: &str, answer: &[u8]) -> Result<ServerMode, Error> {
    let text = String::from_utf8_lossy(answer);
    if text.contains("not currently serving") {
        let message = format!("ZooKeeper at {address} is not serving: it has no quorum");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if answer.starts_with(VERSION) {
        let is_standalone = text.lines().any(|line| line == "Mode: standalone");
        return Ok(if is_standalone {
            ServerMode::Standalone
        } else {
            ServerMode::PerhapsFollower
        });
    }
    if text.contains("not in the whitelist") {
        return Ok(ServerMode::PerhapsFollower);
    }
    Err(wrong_server("ZooKeeper", &address, answer))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that greets, reads, and answers what it has read by `answer`, in two pieces.
    async fn ask(greeting: &'static [u8], answer: fn(&[u8]) -> &'static [u8]) -> Result<ServerMode, ErrorKind> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(greeting).unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..length]);
                let answer = answer(&seen);
                let (first, rest) = answer.split_at(answer.len() / 2);
                let _ = stream.write_all(first).and_then(|()| stream.write_all(rest));
            }
        });
        let config = ZooKeeperConfig::new([&address]);
        probe(&config, &address, ANSWER_LIMIT)
            .await
            .map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn tells_what_a_zookeeper_is() {
        let alone = |_: &[u8]| -> &'static [u8] { b"Zookeeper version: 3.8.0\nMode: standalone\nNode count: 5\n" };
        assert_eq!(ask(b"", alone).await, Ok(ServerMode::Standalone));
        let follower = |_: &[u8]| -> &'static [u8] { b"Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n" };
        assert_eq!(ask(b"", follower).await, Ok(ServerMode::PerhapsFollower));
        let cut_off = |_: &[u8]| -> &'static [u8] { b"Zookeeper version: 3.8.0\nLatency: 0\n" };
        assert_eq!(ask(b"", cut_off).await, Ok(ServerMode::PerhapsFollower));
        let whitelist = |_: &[u8]| -> &'static [u8] { b"srvr is not executed because it is not in the whitelist.\n" };
        assert_eq!(ask(b"", whitelist).await, Ok(ServerMode::PerhapsFollower));
    }

    #[tokio::test]
    async fn tells_servers_apart() {
        let starting = |_: &[u8]| -> &'static [u8] { b"This ZooKeeper instance is not currently serving requests\n" };
        assert_eq!(ask(b"", starting).await, Err(ErrorKind::Unavailable));
        let redis = |seen: &[u8]| -> &'static [u8] {
            if seen.ends_with(b"\n") {
                b"-ERR unknown command 'srvr'\r\n"
            } else {
                b""
            }
        };
        assert_eq!(ask(b"", redis).await, Err(ErrorKind::Misconfigured));
        let mysql = |_: &[u8]| -> &'static [u8] { b"" };
        assert_eq!(ask(b"J\0\0\0\n8.0.36\0", mysql).await, Err(ErrorKind::Misconfigured));
        assert_eq!(ask(b"", mysql).await, Err(ErrorKind::Unavailable));
    }

    #[test]
    fn a_wrong_server_is_an_outage_beside_one_that_serves() {
        let serves = || Ok(ServerMode::PerhapsFollower);
        let wrong = || Err(Error::new(ErrorKind::Misconfigured, "odd"));
        let away = || Err(Error::new(ErrorKind::Unavailable, "away"));
        let servers = ["a", "b", "c"].map(str::to_owned);
        let found = |answers: Vec<_>| {
            let found = sum_up(&servers, answers);
            (
                found.serving.concat(),
                found.why.map(|why| (why.kind(), why.to_string())),
            )
        };
        let outage = |message: &str| Some((ErrorKind::Unavailable, message.to_owned()));
        assert_eq!(found(vec![serves(), serves(), serves()]), ("abc".to_owned(), None));
        assert_eq!(
            found(vec![serves(), away(), serves()]),
            ("ac".to_owned(), outage("away"))
        );
        let (serving, why) = found(vec![away(), wrong(), serves()]);
        assert_eq!(serving, "c");
        assert_eq!(why, outage("one of several servers is wrong: odd"));
        let is_final = Some((ErrorKind::Misconfigured, "odd".to_owned()));
        assert_eq!(found(vec![away(), wrong(), away()]), (String::new(), is_final));
        assert_eq!(found(vec![away(), away(), away()]), (String::new(), outage("away")));
    }

    #[tokio::test]
    async fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let config = ZooKeeperConfig::new([&address]);
        let error = probe(&config, &address, ANSWER_LIMIT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.cause().is_some_and(|source| source.is::<io::Error>()));
    }
}
