//! The keys whose changes the server reports over a connection: those that it tracks for this client. It reports one change of
//! a key, and no more until it is asked again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::{Pipeline, PushInfo, PushKind, Value, cmd};
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(super) struct Followed {
    followers: Mutex<HashMap<Vec<u8>, Vec<oneshot::Sender<()>>>>,
    /// True if the server tracks no keys, or not for this user.
    is_refused: AtomicBool,
}

impl Followed {
    /// Completes at the next change of this key, or when the connection ends. To be called before the server is asked to track it.
    pub(super) fn add(&self, key: &str) -> oneshot::Receiver<()> {
        let (tell, changed) = oneshot::channel();
        let mut followers = self.followers.lock();
        followers.retain(|_, of_key| {
            of_key.retain(|follower| !follower.is_closed());
            !of_key.is_empty()
        });
        followers.entry(key.into()).or_default().push(tell);
        changed
    }

    /// Handles a message of the server. Never blocks.
    pub(super) fn receive(&self, push: &PushInfo) {
        match (&push.kind, &push.data[..]) {
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                let mut followers = self.followers.lock();
                for key in keys {
                    if let Value::BulkString(key) = key {
                        followers.remove(key).into_iter().flatten().for_each(tell);
                    }
                }
            }
            // The server has dropped all its data, or tracks too much.
            (PushKind::Invalidate, _) => self.end(),
            _ => {}
        }
    }

    /// Nothing more is reported.
    pub(super) fn end(&self) {
        let followers = std::mem::take(&mut *self.followers.lock());
        followers.into_values().flatten().for_each(tell);
    }

    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

fn tell(follower: oneshot::Sender<()>) {
    // It may have gone.
    let _ = follower.send(());
}

/// Has the server track a key for this connection: from the read of it in the last command. It tracks nothing else, so that other
/// requests cost it nothing.
pub(super) fn track(key: &str) -> Pipeline {
    let mut commands = redis::pipe();
    let command = |name: &str, arguments: &[&str]| {
        let mut command = cmd(name);
        command.arg(arguments);
        command
    };
    commands
        .add_command(command("CLIENT", &["TRACKING", "ON", "OPTIN"]))
        .add_command(command("CLIENT", &["CACHING", "YES"]))
        .add_command(command("PTTL", &[key]));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidate(keys: &[&str]) -> PushInfo {
        let keys = keys.iter().map(|key| Value::BulkString((*key).into())).collect();
        PushInfo {
            kind: PushKind::Invalidate,
            data: vec![Value::Array(keys)],
        }
    }

    #[test]
    fn all_who_follow_the_key_are_told_once() {
        let followed = Followed::default();
        let (mut one, mut two, mut other) = (followed.add("a"), followed.add("a"), followed.add("b"));
        followed.receive(&invalidate(&["c", "a"]));
        assert_eq!((one.try_recv(), two.try_recv()), (Ok(()), Ok(())));
        assert!(
            other
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        drop(other);
        let mut again = followed.add("a");
        assert_eq!(followed.followers.lock().len(), 1);
        // FLUSHALL.
        followed.receive(&PushInfo {
            kind: PushKind::Invalidate,
            data: vec![Value::Nil],
        });
        assert_eq!(again.try_recv(), Ok(()));
        let mut last = followed.add("a");
        followed.end();
        assert_eq!(last.try_recv(), Ok(()));
    }
}
