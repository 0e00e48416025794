//! Makes connections, and asks what they lead to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::identify::{first_answer, is_postgres, wrong_server};
use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::attempts::Attempts;
use super::state::State;
use super::tls::Handshake;
use super::{Connection, OnCall};
use crate::config::{Checks, Host, Pooler, PostgresConfig};
use crate::error::{SqlError, connect_error, may_be_foreign, pooler_between, unreachable};
use crate::probe::{Probe, question, settings};

/// How long another server may take to show what it is.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);

/// TCP probes a connection over which nothing came for so long.
const KEEPALIVES_AFTER: Duration = Duration::from_secs(10);
/// TCP ends a connection on which data was not acknowledged for so long.
const UNANSWERED_FOR: Duration = Duration::from_secs(20);

/// What a connection needs besides what all need.
pub(crate) struct SetUp {
    /// Options in the first message, which the server itself reads. A pooler refuses or ignores them.
    pub(crate) options: Option<String>,
    /// Statements that are run after the probe, which would take what they set for the server's settings.
    /// [`Connection::answer_to_set_up`] has their rows.
    pub(crate) text: String,
    /// For how long the client keeps a connection over which nothing comes, at least.
    pub(crate) keep_silent: Duration,
}

/// Makes that of a connection with this [mark](Connection::mark).
type MakeSetUp = fn(&PostgresConfig, &str) -> SetUp;

/// Makes connections by one configuration.
#[derive(Debug)]
pub(crate) struct Dialer {
    config: PostgresConfig,
    set_up: Option<MakeSetUp>,
    /// Whether a server of ours ever answered.
    has_reached: AtomicBool,
    /// What the server said of itself that was asked last.
    probe: Mutex<Option<Probe>>,
}

impl Dialer {
    pub(crate) fn new(config: PostgresConfig) -> Self {
        Self {
            config,
            set_up: None,
            has_reached: AtomicBool::new(false),
            probe: Mutex::default(),
        }
    }

    /// One for connections over which nothing is granted. It does not judge settings by which a crash loses locks: those that are held
    /// must be kept and ended, whatever becomes of the server.
    pub(crate) fn grants_nothing(config: PostgresConfig) -> Self {
        Self::new(config.with_checks(Checks::Off))
    }

    /// What the server said of itself that was asked last; `None` before the first one was.
    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe.lock().clone()
    }

    /// Checks what was asked over a connection of this dialer, and keeps it if it is right.
    ///
    /// # Errors
    /// Those of [`Probe::check`] and [`Probe::judge`].
    pub(crate) fn check(&self, probe: Probe, address: &str) -> Result<()> {
        probe.check(&self.config, address)?;
        probe.judge(self.config.checks, address, self.probe().as_ref())?;
        *self.probe.lock() = Some(probe);
        Ok(())
    }

    /// Has each connection set up like this besides.
    pub(crate) fn with_set_up(mut self, set_up: MakeSetUp) -> Self {
        self.set_up = Some(set_up);
        self
    }

    /// A new connection to the first address that takes writes, of the first host with one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if none could be reached in time; others if trying again would fail in the same way.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn dial(&self) -> Result<Arc<Connection>> {
        self.dial_with(|| Box::new(|_: &str| {})).await
    }

    /// The same, and has `on_call` take the payloads of notifications.
    pub(crate) async fn dial_with(&self, on_call: impl Fn() -> OnCall) -> Result<Arc<Connection>> {
        let mut attempts = Attempts::new(self.config.hosts.len(), self.config.connect_timeout);
        for host in &self.config.hosts {
            let limit = attempts.next_limit();
            let begun = Instant::now();
            let dialled = match within(limit, host, addresses_of(host)).await {
                Ok(addresses) => {
                    let limit = limit.saturating_sub(begun.elapsed());
                    self.dial_host(host, &addresses, limit, &on_call).await
                }
                Err(error) => Err(error),
            };
            match dialled {
                Ok(connection) => return Ok(connection),
                Err(error) => attempts.failed(error),
            }
        }
        Err(attempts.error())
    }

    /// `None` is the address of a host that needs no other.
    async fn dial_host(
        &self,
        host: &Host,
        addresses: &[Option<IpAddr>],
        limit: Duration,
        on_call: &impl Fn() -> OnCall,
    ) -> Result<Arc<Connection>> {
        let mut attempts = Attempts::new(addresses.len(), limit);
        for address in addresses {
            let limit = attempts.next_limit();
            match timeout(limit, self.dial_address(host, *address, limit, on_call())).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(Failure::Answered(error))) => attempts.failed(error),
                Ok(Err(Failure::Silent(error))) => attempts.got_no_answer(error),
                Err(_) => attempts.got_no_answer(timed_out(host, limit)),
            }
        }
        Err(attempts.error())
    }

    async fn dial_address(
        &self,
        host: &Host,
        ip: Option<IpAddr>,
        limit: Duration,
        on_call: OnCall,
    ) -> Result<Arc<Connection>, Failure> {
        let (user, password) = self.config.login(limit).await.map_err(Error::not_executed)?;
        let mark = HolderId::random().to_string();
        let set_up = self.set_up.map(|set_up| set_up(&self.config, &mark));
        let silent = set_up.as_ref().map_or(Duration::ZERO, |set_up| set_up.keep_silent);
        let mut options = Config::new();
        options
            .user(user)
            .dbname(&self.config.database)
            .application_name("polylock")
            .keepalives_idle(silent.max(KEEPALIVES_AFTER))
            .tcp_user_timeout(silent.max(UNANSWERED_FOR));
        if let Some(password) = password {
            options.password(password);
        }
        match host {
            // TLS verifies the host's name.
            Host::Tcp(host, port) => options.host(host).port(*port),
            #[cfg(unix)]
            Host::Socket(directory, port) => options.host_path(directory).port(*port),
            #[cfg(not(unix))]
            Host::Socket(..) => {
                let error = Error::new(ErrorKind::Misconfigured, "there are no Unix sockets here");
                return Err(error.not_executed().into());
            }
        };
        if let Some(ip) = ip {
            options.hostaddr(ip);
        }
        let has_options = set_up.as_ref().is_some_and(|set_up| set_up.options.is_some());
        if let Some(text) = set_up.as_ref().and_then(|set_up| set_up.options.as_ref()) {
            options.options(text);
        }
        let address = host.to_string();
        let connected = match &self.config.tls {
            Some(tls) => {
                options.ssl_mode(SslMode::Require);
                let handshake = Handshake {
                    tls: tls.clone(),
                    server: format!("the PostgreSQL server at {address}"),
                    host: String::new(),
                };
                let connected = options.connect(handshake).await;
                connected.map(|(client, driver)| Connection::spawn(client, driver, on_call))
            }
            None => {
                options.ssl_mode(SslMode::Disable);
                let connected = options.connect(NoTls).await;
                connected.map(|(client, driver)| Connection::spawn(client, driver, on_call))
            }
        };
        match connected {
            Ok(connected) => Ok(self.set_up(connected, &address, mark, set_up).await?),
            // The server itself takes these options.
            Err(error) if has_options && error.code().is_some_and(|code| code.code() == "08P01") => {
                Err(pooler_between(&address).with_source(error).not_executed().into())
            }
            Err(error) => {
                let is_foreign = !self.has_reached.load(Ordering::Relaxed) && may_be_foreign(&error);
                let has_answered = error.as_db_error().is_some();
                let error = connect_error(error, &address);
                if is_foreign && let Some(foreign) = foreign_server(host, ip).await {
                    return Err(foreign.into());
                }
                match has_answered || error.kind() != ErrorKind::Unavailable {
                    true => Err(Failure::Answered(error)),
                    false => Err(Failure::Silent(error)),
                }
            }
        }
    }

    /// Sets what locks need, and asks what the server is, in one round trip.
    async fn set_up(
        &self,
        made: (Client, Arc<State>, AbortHandle),
        address: &str,
        mark: String,
        set_up: Option<SetUp>,
    ) -> Result<Arc<Connection>> {
        let is_own = self.config.pooler != Pooler::Transaction;
        let (settings, question) = (settings(&self.config), question(&self.config));
        let text = match (is_own, set_up) {
            (false, _) => question,
            (true, None) => format!("{settings};{question}"),
            (true, Some(set_up)) => format!("{settings};{question};{}", set_up.text),
        };
        let mut connection = Connection::new(made, !is_own, mark);
        let asked = Instant::now();
        let answer = connection.run(&text, None).await;
        let answer = answer.map_err(|error| SqlError::into_lock_error(error).not_executed())?;
        self.has_reached.store(true, Ordering::Relaxed);
        connection.round_trip = asked.elapsed();
        let probe = Probe::read(&answer).map_err(SqlError::into_lock_error)?;
        self.check(probe, address).map_err(Error::not_executed)?;
        connection.answer_to_set_up = answer;
        connection.was_used = AtomicBool::new(false);
        Ok(Arc::new(connection))
    }
}

/// Why an address gave no connection.
enum Failure {
    /// What answers there refused, or this process cannot use it.
    Answered(Error),
    /// Nothing answered there.
    Silent(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Answered(error)
    }
}

async fn within<T>(limit: Duration, host: &Host, dialling: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(limit, dialling)
        .await
        .unwrap_or_else(|_| Err(timed_out(host, limit)))
}

fn timed_out(host: &Host, limit: Duration) -> Error {
    let message = format!("the PostgreSQL server at {host} did not accept a connection within {limit:?}");
    Error::new(ErrorKind::Unavailable, message).not_executed()
}

/// The addresses of a host's name. The driver would try them as well, but it knows no limit for one of them.
async fn addresses_of(host: &Host) -> Result<Vec<Option<IpAddr>>> {
    let Host::Tcp(name, port) = host else {
        return Ok(vec![None]);
    };
    resolved(host, lookup_host((name.as_str(), *port)).await)
}

/// The same by the resolver's answer.
fn resolved(host: &Host, found: io::Result<impl Iterator<Item = SocketAddr>>) -> Result<Vec<Option<IpAddr>>> {
    let found = found.map_err(|error| unreachable(&host.to_string()).with_source(error).not_executed())?;
    let addresses: Vec<_> = found.map(|address| Some(address.ip())).collect();
    match addresses.is_empty() {
        true => Err(unreachable(&host.to_string()).not_executed()),
        false => Ok(addresses),
    }
}

/// The error that names a server of another kind, if one answers there.
async fn foreign_server(host: &Host, address: Option<IpAddr>) -> Option<Error> {
    let (Host::Tcp(_, port), Some(address)) = (host, address) else {
        return None;
    };
    let answer = first_answer(&address.to_string(), *port, SILENCE_LIMIT, SILENCE_LIMIT)
        .await
        .ok()?;
    (!answer.is_empty() && !is_postgres(&answer)).then(|| wrong_server("PostgreSQL", host, &answer).not_executed())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::connection::scripted::message;

    /// As those of one name: the first swallows what it gets, and the second is a server that starts.
    #[tokio::test]
    async fn an_address_that_takes_no_writes_hides_no_other_of_its_host() {
        let last = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = last.local_addr().unwrap().port();
        let _silent = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let starting = TcpListener::bind(("127.0.0.3", port)).await.unwrap();
        let config = PostgresConfig::new("db", port).with_database("d");
        let (dialer, host) = (Dialer::new(config), Host::Tcp("db".into(), port));
        let addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.1"].map(|ip| ip.parse().ok());
        let limit = Duration::from_secs(12);
        let on_call = || -> OnCall { Box::new(|_| {}) };
        let dialling = dialer.dial_host(&host, &addresses, limit, &on_call);
        let serving = async {
            let (mut second, _) = starting.accept().await.unwrap();
            assert_ne!(second.read(&mut [0; 64]).await.unwrap(), 0);
            let refusal = message(b'E', b"SFATAL\0VFATAL\0C57P03\0Mstarting\0\0");
            second.write_all(&refusal).await.unwrap();
            last.accept().await.unwrap()
        };
        tokio::select! {
            biased;
            _accepted = testbed::happens("the last one is dialled", serving) => {}
            dialled = dialling => panic!("the last address was not dialled: {dialled:?}"),
        }
    }

    /// Nothing listens at the second address of this name.
    #[tokio::test]
    async fn a_refused_address_hides_no_answer_of_its_host() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let refusing = TcpSocket::new_v4().unwrap();
        refusing.bind(([127, 0, 0, 2], port).into()).unwrap();
        let dialer = Dialer::new(PostgresConfig::new("db", port).with_database("d"));
        let host = Host::Tcp("db".into(), port);
        for order in [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]] {
            let addresses = order.map(|ip| ip.parse().ok());
            let on_call = || -> OnCall { Box::new(|_| {}) };
            let dialling = dialer.dial_host(&host, &addresses, Duration::from_secs(60), &on_call);
            let serving = async {
                let (mut client, _) = server.accept().await.unwrap();
                assert_ne!(client.read(&mut [0; 64]).await.unwrap(), 0);
                let refusal = message(b'E', b"SFATAL\0VFATAL\0C28P01\0Mwrong password\0\0");
                client.write_all(&refusal).await.unwrap();
            };
            let both = async { tokio::join!(dialling, serving).0 };
            let error = testbed::happens("the login is refused", both).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{order:?}: {error}");
        }
    }

    #[test]
    fn a_name_without_an_address_is_unreachable() {
        let host = Host::Tcp("db".into(), 5432);
        let none = || Vec::<SocketAddr>::new().into_iter();
        for found in [Ok(none()), Err(io::Error::other("no such name"))] {
            let error = resolved(&host, found).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unavailable && error.is_not_executed(),
                "{error:?}"
            );
            assert!(error.to_string().contains("db:5432 cannot be reached"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_address_in_place_of_a_name_is_dialled_itself() {
        let addresses = addresses_of(&Host::Tcp("127.0.0.1".into(), 5432)).await.unwrap();
        assert_eq!(addresses, ["127.0.0.1".parse().ok()]);
    }
}
