//! The token offset of the root path, as one session knows it: the largest that it has seen, and a watch where it does not change.
//!
//! A server sends the event of a watch before it answers a request that it reads after the change, and the driver passes both on in
//! this order. So if the watch has not fired when an answer is there, the offset was unchanged when the server answered.
//!
//! A server may tell a client nothing of a node that the client may not read. ZooKeeper is said to do so since 3.8.4 and 3.9.2
//! (CVE-2024-23944); no test shows it. So no client watches the absence of the node, which another one may create unreadable. It is
//! created for the watch, and everybody may read it.
//!
//! The driver removes a watch that is dropped before it has fired. That would also remove one on the same node that was asked for
//! meanwhile. So a session asks for one at a time, in a task that nobody cancels, and keeps it until it has fired or its connection
//! has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use zookeeper_client::{Client, Error as DriverError, OneshotWatcher, Stat, WatchedEvent};

use super::driver::Connection;
use crate::config::ZooKeeperConfig;
use crate::names;
use crate::protocol::{create_offset_options, offset_data, parse_offset};

/// After so many reads in a row without a change the node is watched. A grant that raises the offset makes three of them. Where most
/// grants do, as in a quorum, a watch would only cost.
const UNCHANGED_READS: u32 = 8;

/// After so many more of them it is tried again over a connection over which it could not be watched: permissions may have changed.
const UNCHANGED_READS_AFTER_REFUSAL: u32 = 100;

/// Fires when the offset may have changed.
type Changed = Pin<Box<dyn Future<Output = Option<WatchedEvent>> + Send>>;

/// The offset that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// `None` stands for other data.
    pub(crate) offset: Option<i64>,
    /// The version of the node; `None` if there is none.
    pub(crate) version: Option<i32>,
}

impl Stored {
    /// Reads the offset. The request is sent at once.
    pub(crate) fn read(
        client: &Client,
        config: &ZooKeeperConfig,
    ) -> impl Future<Output = Result<Self, DriverError>> + Send + use<> {
        let read = client.get_data(&names::token_offset(config.root()));
        async move {
            match read.await {
                Ok((data, stat)) => Ok(Self::new(&data, &stat)),
                Err(DriverError::NoNode) => Ok(Self {
                    offset: Some(0),
                    version: None,
                }),
                Err(error) => Err(error),
            }
        }
    }

    fn new(data: &[u8], stat: &Stat) -> Self {
        Self {
            offset: parse_offset(data),
            version: Some(stat.version),
        }
    }
}

/// What a session knows of the offset.
#[derive(Default)]
pub(crate) struct TokenOffset {
    /// The largest that was read or written.
    known: AtomicI64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of reads in a row that found no change.
    unchanged: u32,
    watch: Option<Watch>,
}

struct Watch {
    over: Weak<Connection>,
    stage: Stage,
}

enum Stage {
    Asked,
    Set(Arc<Stored>, Changed),
    /// It could not be watched over this connection. Not tried again before so many reads in a row.
    Refused(u32),
}

impl TokenOffset {
    pub(crate) fn known(&self) -> i64 {
        self.known.load(Ordering::SeqCst)
    }

    pub(crate) fn learn(&self, offset: i64) {
        if self.known.fetch_max(offset, Ordering::SeqCst) < offset {
            self.state.lock().unchanged = 0;
        }
    }

    /// The offset as it was when the last answer came over this connection, if it is watched.
    pub(crate) fn watched(&self, over: &Arc<Connection>) -> Option<Arc<Stored>> {
        let mut state = self.state.lock();
        let watch = state.watch.as_mut().filter(|watch| watch.is_over(over))?;
        let Stage::Set(stored, changed) = &mut watch.stage else {
            return None;
        };
        // Tokio's budget must not hide the event.
        if unconstrained(changed).now_or_never().is_some() {
            *state = State::default();
            return None;
        }
        Some(stored.clone())
    }

    /// Whether no event has come since `watched` returned this.
    pub(crate) fn is_unchanged(&self, stored: &Arc<Stored>, over: &Arc<Connection>) -> bool {
        self.watched(over).is_some_and(|watched| Arc::ptr_eq(&watched, stored))
    }

    /// Notes that a read over this connection found the offset as it was known before. Asks for a watch if that is worth it.
    pub(crate) fn was_unchanged(
        self: &Arc<Self>,
        over: &Arc<Connection>,
        config: &Arc<ZooKeeperConfig>,
        runtime: &Handle,
    ) {
        let mut state = self.state.lock();
        state.unchanged = state.unchanged.saturating_add(1);
        // One over another connection is in use while that lives.
        let has_watch = state.watch.as_ref().is_some_and(|watch| match watch.stage {
            Stage::Refused(until) if state.unchanged >= until => false,
            _ => watch.over.strong_count() > 0,
        });
        if has_watch || state.unchanged < UNCHANGED_READS {
            return;
        }
        state.watch = Some(Watch {
            over: Arc::downgrade(over),
            stage: Stage::Asked,
        });
        let (this, over, config) = (self.clone(), over.clone(), config.clone());
        runtime.spawn(async move {
            let found = this.watch(&over, &config).await;
            this.set(&over, found);
        });
    }

    /// Reads the offset and watches its node. Creates it if it is missing.
    async fn watch(&self, over: &Connection, config: &ZooKeeperConfig) -> Option<(Stored, OneshotWatcher)> {
        let path = names::token_offset(config.root());
        let read = async || match over.client.get_and_watch_data(&path).await {
            Ok((data, stat, watch)) => Ok((Stored::new(&data, &stat), watch)),
            Err(error) => Err(error),
        };
        match read().await {
            Err(DriverError::NoNode) => {}
            answer => return answer.ok(),
        }
        let options = create_offset_options(config);
        match over.client.create(&path, &offset_data(self.known()), &options).await {
            Ok(_) | Err(DriverError::NodeExists) => read().await.ok(),
            Err(_) => None,
        }
    }

    fn set(&self, over: &Arc<Connection>, found: Option<(Stored, OneshotWatcher)>) {
        if let Some(offset) = found.as_ref().and_then(|(stored, _)| stored.offset) {
            self.learn(offset);
        }
        let mut state = self.state.lock();
        let again = state.unchanged.saturating_add(UNCHANGED_READS_AFTER_REFUSAL);
        // Another connection may have taken its place.
        if let Some(watch) = state.watch.as_mut().filter(|watch| watch.is_over(over)) {
            watch.stage = match found {
                Some((stored, watch)) => Stage::Set(Arc::new(stored), Box::pin(over.watching(watch))),
                None => Stage::Refused(again),
            };
        }
    }
}

impl Watch {
    fn is_over(&self, connection: &Arc<Connection>) -> bool {
        self.over.as_ptr() == Arc::as_ptr(connection)
    }
}
