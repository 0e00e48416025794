//! The channels in hash slots that a connection to a master of a cluster is subscribed to.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

/// As the server last said. Replies are not looked at: the server ends a subscription unasked if the hash slot moves away, and
/// the driver takes that for the reply to whatever is in flight.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// The moment when each channel was last used.
    subscribed: Mutex<HashMap<String, Instant>>,
    changed: Notify,
}

/// The time for which a channel outlives its last use. Longer than a queue entry, so that it lasts from one refresh to
/// the next.
const IDLE: Duration = Duration::from_secs(20);

impl Channels {
    /// Handles a message of the server. Never blocks.
    pub(super) fn receive(&self, push: &PushInfo) {
        let Some(Value::BulkString(channel)) = push.data.first() else {
            return;
        };
        let channel = String::from_utf8_lossy(channel);
        match push.kind {
            PushKind::SSubscribe => drop(self.subscribed.lock().insert(channel.into_owned(), Instant::now())),
            PushKind::SUnsubscribe => drop(self.subscribed.lock().remove(&*channel)),
            _ => return,
        }
        self.changed.notify_waiters();
    }

    /// Returns whether the channel is subscribed to, and counts that as a use.
    pub(super) fn use_now(&self, channel: &str) -> bool {
        let mut subscribed = self.subscribed.lock();
        let Some(used) = subscribed.get_mut(channel) else {
            return false;
        };
        *used = Instant::now();
        true
    }

    /// Waits until it is subscribed to.
    pub(super) async fn subscribed_to(&self, channel: &str) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.use_now(channel) {
                return;
            }
            changed.await;
        }
    }

    /// Takes out some that nobody needs any more: from here on nobody relies on them.
    pub(super) fn idle(&self) -> Vec<String> {
        const AT_ONCE: usize = 4;
        let mut subscribed = self.subscribed.lock();
        let idle = subscribed.iter().filter(|(_, used)| used.elapsed() > IDLE);
        let idle: Vec<String> = idle.take(AT_ONCE).map(|(channel, _)| channel.clone()).collect();
        subscribed.retain(|channel, _| !idle.contains(channel));
        idle
    }
}
