//! Redis.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::server::{Recipe, Run, Server};
use crate::url::Url;
use crate::{Clock, Error, locate};

/// A Redis to start. Every write is on disk (`appendfsync always`) before it is acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    password: Option<String>,
    clock: Option<Clock>,
}

impl Redis {
    /// One without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for this password (`requirepass`). Default: none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Lets it run on this clock. Default: the real one.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }
}

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn url_variable(&self) -> &'static str {
        "POLYLOCK_REDIS_URL"
    }

    fn default_port(&self) -> u16 {
        6379
    }

    fn url(&self, port: u16) -> Url {
        Url::new(
            "redis",
            self.password.as_deref().map(|password| ("", password)),
            port,
            "",
        )
    }

    fn fill(&self, _data: &Path, _port: u16) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        let mut command = Command::new(locate::redis()?);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"])
            .arg(data);
        command.args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
            "--daemonize",
            "no",
        ]);
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        if let Some(clock) = &self.clock {
            command.envs(clock.environment());
        }
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        ask(run.port, self.password.as_deref()).is_ok_and(|answer| {
            answer.contains(&format!("process_id:{}\r", run.pid)) && answer.contains("\nloading:0\r")
        })
    }
}

/// What INFO says.
fn ask(port: u16, password: Option<&str>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = String::new();
    if let Some(password) = password {
        request += &format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len());
    }
    request += "*1\r\n$4\r\nINFO\r\n*1\r\n$4\r\nQUIT\r\n";
    stream.write_all(request.as_bytes())?;
    // QUIT makes the server close.
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
