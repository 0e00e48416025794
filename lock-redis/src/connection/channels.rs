//! The channels in hash slots that a connection to a master of a cluster is subscribed to.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

/// As the server last said. Replies are not looked at: the server ends a subscription unasked if the hash slot moves away, and
/// the driver takes that for the reply to whatever is in flight.
#[derive(Debug, Default)]
pub(super) struct Channels {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// The moment when each channel was last used.
    subscribed: HashMap<String, Instant>,
    /// Those whose subscription is being ended.
    ending: HashSet<String>,
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
        let mut known = self.known.lock();
        match push.kind {
            PushKind::SSubscribe => {
                known.ending.remove(&*channel);
                known.subscribed.insert(channel.into_owned(), Instant::now());
            }
            PushKind::SUnsubscribe => {
                known.ending.remove(&*channel);
                known.subscribed.remove(&*channel);
            }
            _ => return,
        }
        drop(known);
        self.changed.notify_waiters();
    }

    /// Returns whether the channel is subscribed to, and counts that as a use.
    pub(super) fn use_now(&self, channel: &str) -> bool {
        let mut known = self.known.lock();
        let Some(used) = known.subscribed.get_mut(channel) else {
            return false;
        };
        *used = Instant::now();
        true
    }

    /// Waits until it is subscribed to.
    pub(super) async fn subscribed_to(&self, channel: &str) {
        self.until(|| self.use_now(channel)).await;
    }

    /// Waits until no subscription to it is being ended: a new one might be sent before the end of the old one.
    pub(super) async fn ended(&self, channel: &str) {
        self.until(|| !self.known.lock().ending.contains(channel)).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so() {
                return;
            }
            changed.await;
        }
    }

    /// Takes out some that nobody needs any more, to be ended: from here on nobody relies on them.
    pub(super) fn idle(&self) -> Vec<String> {
        const AT_ONCE: usize = 64;
        let mut known = self.known.lock();
        let idle = known.subscribed.iter().filter(|(_, used)| used.elapsed() > IDLE);
        let idle: Vec<String> = idle.take(AT_ONCE).map(|(channel, _)| channel.clone()).collect();
        for channel in &idle {
            known.subscribed.remove(channel);
            known.ending.insert(channel.clone());
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, timeout};

    use super::*;

    fn push(kind: PushKind, channel: &str) -> PushInfo {
        PushInfo {
            kind,
            data: vec![Value::BulkString(channel.into()), Value::Int(1)],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_is_idle_twenty_seconds_after_its_last_use() {
        let channels = Channels::default();
        for channel in ["a", "b"] {
            channels.receive(&push(PushKind::SSubscribe, channel));
        }
        advance(IDLE).await;
        assert!(channels.idle().is_empty());
        assert!(channels.use_now("b"));
        advance(Duration::from_millis(1)).await;
        assert_eq!(channels.idle(), ["a"]);
        assert!(channels.idle().is_empty(), "it is being ended");
        assert_eq!((channels.use_now("a"), channels.use_now("b")), (false, true));
    }

    /// Otherwise the server may execute the end of the former subscription after the new one.
    #[tokio::test(start_paused = true)]
    async fn a_channel_is_subscribed_to_again_when_the_former_subscription_has_ended() {
        let channels = Channels::default();
        let is_ended = async || timeout(IDLE, channels.ended("a")).await.is_ok();
        assert!(is_ended().await);
        for end in [PushKind::SUnsubscribe, PushKind::SSubscribe] {
            channels.receive(&push(PushKind::SSubscribe, "a"));
            advance(2 * IDLE).await;
            assert_eq!(channels.idle(), ["a"]);
            assert!(!is_ended().await);
            channels.receive(&push(end, "a"));
            assert!(is_ended().await);
        }
    }
}
