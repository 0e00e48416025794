//! Redis.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Clock, Disk, Error, locate};

/// A Redis to start. Every write is on disk (`appendfsync always`) before it is acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    edition: Edition,
    password: Option<String>,
    clock: Option<Clock>,
    disk: Option<Disk>,
    settings: Vec<(String, Vec<String>)>,
}

/// Which program, of which version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Edition {
    /// The distribution's own Redis: 7.0 on Debian 12.
    #[default]
    Own,
    /// Redis 8. Where `CI` is not set, it may be missing.
    Redis8,
    /// Valkey 9. Where `CI` is not set, it may be missing.
    Valkey9,
}

impl Edition {
    /// Those that may be missing.
    pub const EXTRA: [Self; 2] = [Self::Redis8, Self::Valkey9];

    /// As commands and directories call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "redis",
            Self::Redis8 => "redis8",
            Self::Valkey9 => "valkey9",
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Own => "Redis",
            Self::Redis8 => "Redis 8",
            Self::Valkey9 => "Valkey 9",
        }
    }

    /// Naming one that runs, and a program to start.
    pub(crate) fn variables(self) -> &'static [&'static str; 2] {
        match self {
            Self::Own => &["POLYLOCK_REDIS_URL", "POLYLOCK_REDIS_SERVER"],
            Self::Redis8 => &["POLYLOCK_REDIS8_URL", "POLYLOCK_REDIS8_SERVER"],
            Self::Valkey9 => &["POLYLOCK_VALKEY9_URL", "POLYLOCK_VALKEY9_SERVER"],
        }
    }

    /// Where `cargo xtask servers --install` puts the program, in [`installed_dir`](crate::installed_dir).
    pub(crate) fn installed(self) -> &'static str {
        match self {
            Self::Own => "unpacked/bin/redis-server",
            Self::Redis8 => "redis8/unpacked/bin/redis-server",
            Self::Valkey9 => "valkey9/unpacked/bin/valkey-server",
        }
    }
}

impl Redis {
    /// The distribution's own, without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another one than the distribution's own.
    #[must_use]
    pub fn edition(mut self, edition: Edition) -> Self {
        self.edition = edition;
        self
    }

    /// A line of its configuration file, which wins over those that are there by default: a directive and its
    /// arguments, like `("user", ["ann", "on", ">secret"])`.
    #[must_use]
    pub fn setting(mut self, directive: &str, arguments: impl IntoIterator<Item: Into<String>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.settings.push((directive.into(), arguments));
        self
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

    /// Lets it write to this disk. Default: the real one.
    #[must_use]
    pub fn disk(mut self, disk: &Disk) -> Self {
        self.disk = Some(disk.clone());
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }
}

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        self.edition.name()
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
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
        let mut command = Command::new(locate::redis(self.edition)?);
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
        for (directive, arguments) in &self.settings {
            command.arg(format!("--{directive}")).args(arguments);
        }
        command.envs(self.clock.as_ref().map(Clock::variable));
        command.envs(self.disk.as_ref().map(Disk::variable));
        let libraries: Vec<_> = (self.clock.iter().map(Clock::library))
            .chain(self.disk.iter().map(Disk::library))
            .map(std::path::PathBuf::into_os_string)
            .collect();
        if !libraries.is_empty() {
            command.env("LD_PRELOAD", libraries.join(OsStr::new(":")));
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
