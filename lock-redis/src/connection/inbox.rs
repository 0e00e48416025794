//! What the server tells this process's waiters unasked: `ID MS` on the inbox channel has the waiter of this holder id
//! look after so many milliseconds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::HolderId;
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
    waiting: HashMap<HexId, Arc<Waiter>>,
    /// For those whose acquire has been executed but not been seen as answered yet: they are not known to wait.
    early: VecDeque<(HexId, Instant)>,
}

type HexId = [u8; HolderId::HEX_DIGITS];

#[derive(Debug, Default)]
struct Waiter {
    look_at: Mutex<Option<Instant>>,
    told: Notify,
}

/// Somebody who waits, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    inbox: &'a Inbox,
    id: HexId,
    waiter: Arc<Waiter>,
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

    /// Begins to listen, also to what was said just before.
    pub(crate) fn listen(&self, holder: HolderId) -> Waiting<'_> {
        let id = hex(holder);
        let waiter = Arc::new(Waiter::default());
        let mut waiters = lock(&self.waiters);
        waiters.forget_the_old();
        for (_, at) in waiters.early.iter().filter(|(early, _)| *early == id) {
            waiter.look(*at);
        }
        waiters.early.retain(|(early, _)| *early != id);
        waiters.waiting.insert(id, waiter.clone());
        Waiting {
            inbox: self,
            id,
            waiter,
        }
    }

    pub(crate) fn is_waiting(&self, holder: HolderId) -> bool {
        lock(&self.waiters).waiting.contains_key(&hex(holder))
    }

    /// Takes what the driver got from the server. Never blocks.
    pub(crate) fn push(&self, push: &PushInfo) {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) =
            (&push.kind, &push.data[..])
        else {
            return;
        };
        if channel == self.channel.as_bytes()
            && let Some((id, after)) = parse(message)
            && let Some(at) = Instant::now().checked_add(after)
        {
            self.tell(id, at);
        }
    }

    /// What the server said last may have got lost with a connection.
    pub(crate) fn wake_all(&self) {
        let now = Instant::now();
        for waiter in lock(&self.waiters).waiting.values() {
            waiter.look(now);
        }
    }

    fn tell(&self, id: HexId, at: Instant) {
        const EARLY: usize = 1024;
        let mut waiters = lock(&self.waiters);
        if let Some(waiter) = waiters.waiting.get(&id) {
            waiter.look(at);
        } else {
            // Perhaps of one that has gone: then the oldest make room.
            waiters.forget_the_old();
            if waiters.early.len() == EARLY {
                waiters.early.pop_front();
            }
            waiters.early.push_back((id, at));
        }
    }
}

impl Waiters {
    /// Those that nobody came for.
    fn forget_the_old(&mut self) {
        const OLD: Duration = Duration::from_secs(10);
        while self.early.pop_front_if(|(_, at)| at.elapsed() > OLD).is_some() {}
    }
}

impl Waiting<'_> {
    /// To be called before the server is asked: what it said before is answered by that.
    pub(crate) fn forget(&self) {
        *lock(&self.waiter.look_at) = None;
    }

    /// Until it is time to look.
    pub(crate) async fn look_at(&self, latest: Instant) {
        loop {
            let at = lock(&self.waiter.look_at).map_or(latest, |at| at.min(latest));
            // A timer that is due already fires only with the runtime's next tick, a millisecond later.
            if at <= Instant::now() {
                return;
            }
            tokio::select! {
                biased;
                () = sleep_until(at) => return,
                () = self.waiter.told.notified() => {}
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.inbox.waiters);
        // The same request may have begun to wait anew.
        if waiters
            .waiting
            .get(&self.id)
            .is_some_and(|waiter| Arc::ptr_eq(waiter, &self.waiter))
        {
            waiters.waiting.remove(&self.id);
        }
    }
}

impl Waiter {
    fn look(&self, at: Instant) {
        let mut look_at = lock(&self.look_at);
        *look_at = Some(look_at.map_or(at, |sooner| sooner.min(at)));
        drop(look_at);
        self.told.notify_one();
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(inbox: &Inbox, message: &str) {
        inbox.push(&PushInfo {
            kind: PushKind::Message,
            data: [inbox.channel(), message]
                .map(|text| Value::BulkString(text.into()))
                .into(),
        });
    }

    async fn looks_after(waiting: &Waiting<'_>) -> Duration {
        let start = Instant::now();
        waiting.look_at(start + Duration::from_secs(60)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_looks_as_soon_as_anything_told_it() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        let waiting = inbox.listen(holder);
        assert!(inbox.is_waiting(holder) && !inbox.is_waiting(HolderId::random()));
        assert_eq!(looks_after(&waiting).await, Duration::from_secs(60));
        said(&inbox, &format!("{holder} 700"));
        said(&inbox, &format!("{holder} 300"));
        said(&inbox, &format!("{holder} 500"));
        said(&inbox, &format!("{} 0", HolderId::random()));
        assert_eq!(looks_after(&waiting).await, Duration::from_millis(300));
        waiting.forget();
        assert_eq!(looks_after(&waiting).await, Duration::from_secs(60));
        inbox.wake_all();
        assert_eq!(looks_after(&waiting).await, Duration::ZERO);
        drop(waiting);
        assert!(!inbox.is_waiting(holder));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_while_it_waits_counts() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        let waiting = inbox.listen(holder);
        let telling = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            said(&inbox, &format!("{holder} 100"));
        };
        let (after, ()) = tokio::join!(looks_after(&waiting), telling);
        assert_eq!(after, Duration::from_millis(1100));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_just_before_counts_too() {
        let (inbox, holder) = (Inbox::new("a:"), HolderId::random());
        said(&inbox, &format!("{holder} 0"));
        for _ in 0..1023 {
            said(&inbox, &format!("{} 0", HolderId::random()));
        }
        assert_eq!(looks_after(&inbox.listen(holder)).await, Duration::ZERO);
        for _ in 0..2000 {
            said(&inbox, &format!("{} 0", HolderId::random()));
        }
        assert_eq!(lock(&inbox.waiters).early.len(), 1024, "it does not pile up");
    }

    #[test]
    fn only_what_we_say_ourselves_is_understood() {
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
