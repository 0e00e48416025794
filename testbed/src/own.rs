//! A server that we started, from its first start to its end.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::port::Port;
use crate::process::Process;
use crate::recipe::{Recipe, Run};
use crate::watchdog::Watchdog;
use crate::{Error, data};

/// How many servers start at a time that are slow to start. Twenty at once leave nothing to the tests beside them, whose clocks go on.
const AT_A_TIME: usize = 3;

static STARTING: Semaphore = Semaphore::const_new(AT_A_TIME);

/// A server that we started. The fields are dropped in this order: the port stays ours until all else is gone.
#[derive(Debug)]
pub(crate) struct Own {
    running: Option<Process>,
    watchdog: Watchdog,
    port: Port,
}

/// What a restarted server finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    Keep,
    Discard,
}

impl Own {
    pub(crate) fn start(recipe: &dyn Recipe) -> Result<Self, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = Port::reserve().map_err(Error::io("choosing a port"))?;
            let watchdog = Watchdog::start(&data::base(), recipe.name())?;
            let mut own = Self {
                running: None,
                watchdog,
                port,
            };
            match own.restart(recipe, Data::Discard) {
                Ok(()) => return Ok(own),
                // Another program was quicker.
                Err(Error::Start { .. }) if attempts < 5 && !own.port.is_free() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Blocks. To be called where a runtime's blocking work is done.
    pub(crate) fn restart(&mut self, recipe: &dyn Recipe, what: Data) -> Result<(), Error> {
        self.kill()?;
        let data = self.data();
        if what == Data::Discard {
            if data.exists() {
                std::fs::remove_dir_all(&data).map_err(Error::io("removing a server's data"))?;
            }
            std::fs::create_dir(&data).map_err(Error::io("creating a data directory"))?;
            recipe.fill(&data, self.port.number())?;
        }
        let command = recipe.command(&data, self.port.number())?;
        let _starting = recipe.is_slow_to_start().then(its_turn);
        self.running = Some(Process::start(&command, &self.log(), &self.watchdog)?);
        self.wait_until_ready(recipe).map_err(|problem| {
            let log = data::log_tail(&self.log());
            // The first error says more than one of the cleaning up.
            let _ = self.kill();
            Error::Start {
                server: recipe.name(),
                problem,
                log,
            }
        })
    }

    /// Fills in the recipe's files over those that are there.
    pub(crate) fn fill(&self, recipe: &dyn Recipe) -> Result<(), Error> {
        recipe.fill(&self.data(), self.port.number())
    }

    fn wait_until_ready(&self, recipe: &dyn Recipe) -> Result<(), String> {
        /// Many times what the slowest needs on an overloaded machine.
        const AT_MOST: Duration = Duration::from_secs(180);
        let process = self.running.as_ref().ok_or("it was not started")?;
        let data = self.data();
        let run = Run {
            pid: process.pid(),
            port: self.port.number(),
            data: &data,
        };
        let start = Instant::now();
        // None of these servers can tell us: asking is all there is.
        while !recipe.is_ready(&run) {
            if process.has_ended() {
                return Err(format!("it ended by itself (port {})", self.port.number()));
            }
            if start.elapsed() > AT_MOST {
                return Err(format!("no answer within {AT_MOST:?} (port {})", self.port.number()));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        match self.running.take() {
            Some(process) => process.kill(&self.watchdog).map(|_killed| ()),
            None => Ok(()),
        }
    }

    pub(crate) fn signal(&self, server: &'static str, signal: Signal) -> Result<(), Error> {
        let not_running = Error::NotRunning {
            server,
            port: self.port.number(),
        };
        self.running.as_ref().ok_or(not_running)?.signal(signal)
    }

    fn data(&self) -> PathBuf {
        self.watchdog.dir().join("data")
    }

    fn log(&self) -> PathBuf {
        self.watchdog.dir().join("log")
    }
}

/// Waits until it may start.
fn its_turn() -> SemaphorePermit<'static> {
    Handle::current()
        .block_on(STARTING.acquire())
        .expect("nobody closes it")
}

impl Drop for Own {
    fn drop(&mut self) {
        // What fails here is left to the watchdog.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, TcpListener};
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Redis;
    use crate::server::Server;
    use crate::url::Url;

    /// Redis, but somebody takes its port between choice and start.
    #[derive(Debug)]
    struct Robbed {
        redis: Redis,
        thief: Mutex<Option<TcpListener>>,
    }

    impl Recipe for Robbed {
        fn name(&self) -> &'static str {
            self.redis.name()
        }

        fn url_variable(&self) -> &'static str {
            "POLYLOCK_NO_SUCH_URL"
        }

        fn default_port(&self) -> u16 {
            self.redis.default_port()
        }

        fn url(&self, port: u16) -> Url {
            self.redis.url(port)
        }

        fn fill(&self, _data: &Path, port: u16) -> Result<(), Error> {
            let mut thief = self.thief.lock().expect("no panics");
            if thief.is_none() {
                *thief = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free"));
            }
            Ok(())
        }

        fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
            self.redis.command(data, port)
        }

        fn is_ready(&self, run: &Run<'_>) -> bool {
            self.redis.is_ready(run)
        }
    }

    /// Redis as one of those that are slow to start.
    #[derive(Debug)]
    struct Slow {
        redis: Redis,
        starting: Arc<Starting>,
    }

    /// The ports of the servers that were asked and are not ready, and how many there were at a time.
    #[derive(Debug, Default)]
    struct Starting {
        ports: Mutex<HashSet<u16>>,
        most: AtomicUsize,
    }

    impl Recipe for Slow {
        fn name(&self) -> &'static str {
            self.redis.name()
        }

        fn url_variable(&self) -> &'static str {
            "POLYLOCK_NO_SUCH_URL"
        }

        fn default_port(&self) -> u16 {
            self.redis.default_port()
        }

        fn url(&self, port: u16) -> Url {
            self.redis.url(port)
        }

        fn is_slow_to_start(&self) -> bool {
            true
        }

        fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
            self.redis.fill(data, port)
        }

        fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
            self.redis.command(data, port)
        }

        fn is_ready(&self, run: &Run<'_>) -> bool {
            let mut ports = self.starting.ports.lock().expect("no panics");
            // The first look finds none of them ready.
            if ports.insert(run.port) {
                self.starting.most.fetch_max(ports.len(), Ordering::Relaxed);
                return false;
            }
            let is_ready = self.redis.is_ready(run);
            if is_ready {
                ports.remove(&run.port);
            }
            is_ready
        }
    }

    #[tokio::test]
    async fn those_that_are_slow_to_start_start_a_few_at_a_time() {
        if crate::skip_offline() {
            return;
        }
        let starting = Arc::new(Starting::default());
        let starts = (0..8).map(|_| {
            let (redis, starting) = (Redis::new(), starting.clone());
            tokio::spawn(Server::start(Slow { redis, starting }))
        });
        let starts: Vec<_> = starts.collect();
        for start in starts {
            start.await.expect("no panics").expect("it starts");
        }
        let most = starting.most.load(Ordering::Relaxed);
        assert!((1..=AT_A_TIME).contains(&most), "{most} at a time");
    }

    #[tokio::test]
    async fn a_stolen_port_is_replaced() {
        if crate::skip_offline() {
            return;
        }
        let server = Server::start(Robbed {
            redis: Redis::new(),
            thief: Mutex::new(None),
        })
        .await
        .expect("it starts");
        server.restart().await.expect("and restarts");
    }
}
