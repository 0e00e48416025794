//! Keeps a session: makes a new one when one has ended, for as long as the backend lives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Result};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as Driver, SessionState};

use crate::config::ZooKeeperConfig;
use crate::error;
use crate::heartbeat::Beat;
use crate::probe::probe;
use crate::session::Session;

/// How long the driver may take to connect before we look what answers.
const PROBE_AFTER: Duration = Duration::from_millis(300);

/// Gives out the session, and starts the task that keeps it: at first use, after an error that ended it, and when
/// its runtime has gone.
#[derive(Debug)]
pub(crate) struct Supervisor {
    config: Arc<ZooKeeperConfig>,
    task: Mutex<Option<Task>>,
}

#[derive(Debug)]
struct Task {
    news: watch::Receiver<News>,
    /// Dropping it ends the task, and with it the session unless holds still live by it.
    _stop: oneshot::Sender<()>,
}

#[derive(Clone, Debug)]
enum News {
    /// Not yet, for this reason.
    Connecting(Option<Error>),
    Up(Arc<Session>),
    /// It makes no sense to go on. The task has ended.
    Failed(Error),
}

impl Supervisor {
    pub(crate) fn new(config: Arc<ZooKeeperConfig>) -> Self {
        Self {
            config,
            task: Mutex::new(None),
        }
    }

    /// A connected session, within the connect timeout.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        let limit = self.config.connect_timeout();
        let mut cause = None;
        let found = timeout(limit, self.wait_for_session(&mut cause)).await;
        found.unwrap_or_else(|_| Err(error::unreachable(self.config.servers(), limit, cause)))
    }

    async fn wait_for_session(&self, cause: &mut Option<Error>) -> Result<Arc<Session>> {
        let mut news = self.news();
        loop {
            let latest = news.borrow_and_update().clone();
            match latest {
                News::Up(session) if session.connected().await.is_ok() => return Ok(session),
                News::Up(_) => {}
                News::Connecting(latest) => *cause = latest.or(cause.take()),
                News::Failed(error) => return Err(error),
            }
            if news.changed().await.is_err() && !matches!(*news.borrow(), News::Failed(_)) {
                news = self.news();
            }
        }
    }

    fn news(&self) -> watch::Receiver<News> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &*task
            && task.news.has_changed().is_ok()
        {
            return task.news.clone();
        }
        let (publish, news) = watch::channel(News::Connecting(None));
        let (stop, stopped) = oneshot::channel();
        let config = self.config.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = supervise(&config, publish) => {}
                // Errs when the backend has gone: that is the signal.
                _ = stopped => {}
            }
        });
        *task = Some(Task {
            news: news.clone(),
            _stop: stop,
        });
        news
    }
}

/// Ends a session when nobody keeps it any more, also when that is because the runtime has gone.
struct Keep(Arc<Session>);

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn supervise(config: &ZooKeeperConfig, publish: watch::Sender<News>) {
    let patience = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times();
    let mut delays = patience.build();
    loop {
        let error = match attempt(config).await {
            Ok(session) => {
                let keep = Keep(Arc::new(session));
                publish.send_replace(News::Up(keep.0.clone()));
                let end = keep.0.keep_alive().await;
                drop(keep);
                delays = patience.build();
                match end {
                    SessionState::AuthFailed => error::from_driver(Driver::AuthFailed),
                    _ => error::session_ended(),
                }
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Unavailable {
            publish.send_replace(News::Failed(error));
            return;
        }
        publish.send_replace(News::Connecting(Some(error)));
        // It never ends, having no limit.
        sleep(delays.next().unwrap_or(Duration::from_secs(2))).await;
    }
}

/// One attempt at a session on which the root path is there and ours.
async fn attempt(config: &ZooKeeperConfig) -> Result<Session> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout())
        .with_fail_eagerly();
    if let Some(credentials) = config.credentials() {
        connector = connector.with_auth("digest", credentials.as_bytes());
    }
    let servers = config.servers().join(",");
    let beat = Beat::now();
    let connecting = connector.connect(&servers);
    tokio::pin!(connecting);
    let mut cause = None;
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        found = async { sleep(PROBE_AFTER).await; diagnose(config).await } => match found {
            Some(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
            found => {
                cause = found;
                connecting.await
            }
        },
    };
    let client = match connected {
        Ok(client) => client,
        Err(Driver::AuthFailed) => return Err(error::from_driver(Driver::AuthFailed)),
        Err(error) => {
            let cause = match cause {
                None => diagnose(config).await,
                found => found,
            };
            let silent = || Error::new(ErrorKind::Unavailable, "ZooKeeper gave no session").with_source(error);
            return Err(cause.unwrap_or_else(silent));
        }
    };
    ensure_root(&client, config).await?;
    Ok(Session::new(client, beat, config.root().to_owned()))
}

/// What the servers' addresses say: the worst of it.
async fn diagnose(config: &ZooKeeperConfig) -> Option<Error> {
    let found = join_all(config.servers().iter().map(|server| probe(server))).await;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    let worst = found.iter().position(|error| error.kind() != ErrorKind::Unavailable);
    match worst {
        Some(worst) => Some(found.swap_remove(worst)),
        None => found.pop(),
    }
}

/// Makes the root path, unless it is there, and checks that we may use it.
pub(crate) async fn ensure_root(client: &Client, config: &ZooKeeperConfig) -> Result<()> {
    loop {
        match client.get_data(config.root()).await {
            Ok(_) => return Ok(()),
            Err(Driver::NoNode) => {}
            Err(error) => return Err(error::from_driver(error)),
        }
        let options = create_options(config, CreateMode::Persistent);
        match client.mkdir(config.root(), &options).await {
            // Or it was removed again at the same time.
            Ok(()) | Err(Driver::NoNode) => {}
            Err(error) => return Err(error::from_driver(error)),
        }
    }
}

/// With the access that the configuration asks for.
pub(crate) fn create_options(config: &ZooKeeperConfig, mode: CreateMode) -> CreateOptions<'static> {
    let acls = match config.credentials() {
        Some(_) => Acls::creator_all(),
        None => Acls::anyone_all(),
    };
    mode.with_acls(acls)
}
