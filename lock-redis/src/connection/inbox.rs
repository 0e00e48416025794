//! The wake-ups that the server publishes for the waiters of a backend: the message `ID MS` on the inbox channel has the
//! waiter of this holder id ask again after so many milliseconds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::HolderId;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::names;

/// One for each backend, subscribed to over its connection.
#[derive(Debug)]
pub(crate) struct Inbox {
    channel: String,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// With the hash slots of their names, in a cluster.
    registered: HashMap<HexId, (u16, Arc<Wakeup>)>,
    /// Wake-ups for those whose acquire the server has executed but whose reply has not been processed yet: they have not
    /// registered.
    early: VecDeque<(HexId, Instant)>,
}

type HexId = [u8; HolderId::HEX_DIGITS];

/// The moment at which a waiter has to ask again.
#[derive(Debug, Default)]
struct Wakeup {
    at: Mutex<Option<Instant>>,
    changed: Notify,
}

/// A registered waiter, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    inbox: &'a Inbox,
    id: HexId,
    wakeup: Arc<Wakeup>,
}

impl Inbox {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            channel: names::inbox(prefix),
            waiters: Mutex::default(),
        }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Registers a waiter. A wake-up that came just before counts, too.
    pub(crate) fn register(&self, slot: u16, holder: HolderId) -> Waiter<'_> {
        let id = hex(holder);
        let wakeup = Arc::new(Wakeup::default());
        let mut waiters = self.waiters.lock();
        waiters.drop_old();
        for (_, at) in waiters.early.iter().filter(|(early, _)| *early == id) {
            wakeup.schedule(*at);
        }
        waiters.early.retain(|(early, _)| *early != id);
        waiters.registered.insert(id, (slot, wakeup.clone()));
        Waiter {
            inbox: self,
            id,
            wakeup,
        }
    }

    #[cfg(test)]
    fn has_waiter(&self, holder: HolderId) -> bool {
        self.waiters.lock().registered.contains_key(&hex(holder))
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiters.lock().registered.is_empty()
    }

    /// Handles a message that the server sent unasked. Never blocks.
    pub(crate) fn receive(&self, push: &PushInfo) {
        let (channel, message) = match (&push.kind, &push.data[..]) {
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), Value::BulkString(message)]) => {
                (channel, message)
            }
            // The hash slot has another master now, which wakes nobody here.
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                let slot = names::slot(&String::from_utf8_lossy(channel));
                return self.wake(|of| of == slot);
            }
            _ => return,
        };
        if channel.ends_with(self.channel.as_bytes())
            && let Some((id, after)) = parse(message)
            && let Some(at) = Instant::now().checked_add(after)
        {
            self.schedule(id, at);
        }
    }

    /// To be called after a reconnect: wake-ups may have got lost with the old connection.
    pub(crate) fn wake_all(&self) {
        self.wake(|_| true);
    }

    fn wake(&self, is_one: impl Fn(u16) -> bool) {
        let now = Instant::now();
        for (slot, wakeup) in self.waiters.lock().registered.values() {
            if is_one(*slot) {
                wakeup.schedule(now);
            }
        }
    }

    fn schedule(&self, id: HexId, at: Instant) {
        const EARLY: usize = 1024;
        let mut waiters = self.waiters.lock();
        if let Some((_, wakeup)) = waiters.registered.get(&id) {
            wakeup.schedule(at);
        } else {
            // Perhaps for a waiter that has gone: then the oldest are dropped.
            waiters.drop_old();
            if waiters.early.len() == EARLY {
                waiters.early.pop_front();
            }
            waiters.early.push_back((id, at));
        }
    }
}

impl Waiters {
    /// Drops wake-ups for which no waiter registered.
    fn drop_old(&mut self) {
        const OLD: Duration = Duration::from_secs(10);
        while self.early.front().is_some_and(|(_, at)| at.elapsed() > OLD) {
            self.early.pop_front();
        }
    }
}

impl Waiter<'_> {
    /// To be called before the server is asked: the request makes up for any wake-up before it.
    pub(crate) fn clear(&self) {
        *self.wakeup.at.lock() = None;
    }

    /// Waits until it is time to ask again.
    pub(crate) async fn wait(&self, latest: Instant) {
        loop {
            let at = self.wakeup.at.lock().map_or(latest, |at| at.min(latest));
            // A timer that is due already fires only with the runtime's next tick, a millisecond later.
            if at <= Instant::now() {
                return;
            }
            tokio::select! {
                biased;
                () = sleep_until(at) => return,
                () = self.wakeup.changed.notified() => {}
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.inbox.waiters.lock();
        // The same request may have registered again.
        if waiters
            .registered
            .get(&self.id)
            .is_some_and(|(_, wakeup)| Arc::ptr_eq(wakeup, &self.wakeup))
        {
            waiters.registered.remove(&self.id);
        }
    }
}

impl Wakeup {
    fn schedule(&self, at: Instant) {
        let mut earliest = self.at.lock();
        *earliest = Some(earliest.map_or(at, |sooner| sooner.min(at)));
        drop(earliest);
        self.changed.notify_one();
    }
}

fn parse(message: &[u8]) -> Option<(HexId, Duration)> {
    let (id, rest) = message.split_first_chunk()?;
    let ms = std::str::from_utf8(rest.strip_prefix(b" ")?).ok()?;
    Some((*id, Duration::from_millis(ms.parse().ok()?)))
}

fn hex(holder: HolderId) -> HexId {
    let text = holder.to_string();
    text.as_bytes().try_into().expect("a holder id is written in 32 digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(inbox: &Inbox, message: &str) {
        inbox.receive(&PushInfo {
            kind: PushKind::Message,
            data: [inbox.channel(), message]
                .map(|text| Value::BulkString(text.into()))
                .into(),
        });
    }

    async fn wakes_after(waiter: &Waiter<'_>) -> Duration {
        let start = Instant::now();
        waiter.wait(start + Duration::from_secs(60)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_wakes_at_the_earliest_moment_that_was_published() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        let waiter = inbox.register(0, holder);
        assert!(inbox.has_waiter(holder) && !inbox.has_waiter(HolderId::random()));
        assert_eq!(wakes_after(&waiter).await, Duration::from_secs(60));
        publish(&inbox, &format!("{holder} 700"));
        publish(&inbox, &format!("{holder} 300"));
        publish(&inbox, &format!("{holder} 500"));
        publish(&inbox, &format!("{} 0", HolderId::random()));
        assert_eq!(wakes_after(&waiter).await, Duration::from_millis(300));
        waiter.clear();
        assert_eq!(wakes_after(&waiter).await, Duration::from_secs(60));
        inbox.wake_all();
        assert_eq!(wakes_after(&waiter).await, Duration::ZERO);
        drop(waiter);
        assert!(!inbox.has_waiter(holder));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_counts_that_comes_while_it_waits() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        let waiter = inbox.register(0, holder);
        let publishing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            publish(&inbox, &format!("{holder} 100"));
        };
        let (after, ()) = tokio::join!(wakes_after(&waiter), publishing);
        assert_eq!(after, Duration::from_millis(1100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_counts_that_came_just_before() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        publish(&inbox, &format!("{holder} 0"));
        for _ in 0..1023 {
            publish(&inbox, &format!("{} 0", HolderId::random()));
        }
        assert_eq!(wakes_after(&inbox.register(0, holder)).await, Duration::ZERO);
        for _ in 0..2000 {
            publish(&inbox, &format!("{} 0", HolderId::random()));
        }
        assert_eq!(inbox.waiters.lock().early.len(), 1024, "it does not pile up");
    }

    #[test]
    fn only_our_own_messages_are_parsed() {
        let id = HolderId::random().to_string();
        let bytes: HexId = id.as_bytes().try_into().unwrap();
        let good = parse(format!("{id} 12").as_bytes());
        assert_eq!(good, Some((bytes, Duration::from_millis(12))));
        for bad in [
            String::new(),
            id.clone(),
            format!("{id} "),
            format!("{id} x"),
            format!("{id}12"),
            "x 1".into(),
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
