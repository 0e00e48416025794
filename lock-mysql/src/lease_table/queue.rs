//! The queue of those who wait for a name without a mark in its row: each grant calls one of them.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId};
use lock_kit::pacing::Wakes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::Shared;
use super::waits::Entry;
use crate::protocol::lease_table::{self, holds};

impl Shared {
    /// Makes sure that a waiter that has no mark in the row is called once there is none, and returns what wakes it.
    ///
    /// # Cancel safety
    /// May be dropped at any point: when the waiter leaves, it gives back the entry.
    pub(super) async fn queue_up(self: &Arc<Self>, request: &AcquireRequest) -> Wakes {
        if self
            .waits
            .entry(request.holder())
            .is_some_and(|entry| !entry.session.has_ended())
        {
            return Wakes::Turn;
        }
        let Ok(member) = self.asking.member(None).await else {
            return Wakes::Nobody;
        };
        let mut entry = Entry {
            session: member.session().clone(),
            number: None,
        };
        if !self.waits.set_entry(request.holder(), Some(entry.clone())) {
            return Wakes::Nobody;
        }
        let name = request.name();
        let enter = self.statements.enter_queue(name, rand::random_range(0..usize::MAX));
        // A client that was granted the name before this waiter had its entry does not wake this waiter. So the
        // question is sent behind the entry, in one go.
        let (entered, marked) = tokio::join!(
            self.run(&self.asking, &member, enter),
            self.run(&self.asking, &member, self.statements.is_marked(name))
        );
        let number = entered.and_then(|done| lease_table::entered(&done.result));
        let is_marked = marked.and_then(|done| holds(&done.result));
        match (number, is_marked) {
            // So many others have entries that one of them is always called. The next refusal looks for one again.
            (Ok(None), _) => {
                self.waits.set_entry(request.holder(), None);
                Wakes::Turn
            }
            (Ok(Some(number)), is_marked) if self.waits.number_entry(request.holder(), number) => match is_marked {
                Ok(false) => Wakes::Now,
                Ok(true) => Wakes::Turn,
                Err(_) => {
                    self.give_back_entry(name, request.holder());
                    Wakes::Nobody
                }
            },
            // It was given back meanwhile, with others or before it was taken.
            (Ok(number @ Some(_)), _) => {
                entry.number = number;
                self.leave_and_call(name, Some(entry), false);
                Wakes::Nobody
            }
            // It may have an entry all the same, which would be called in vain.
            _ => {
                self.give_back_entry(name, request.holder());
                Wakes::Nobody
            }
        }
    }

    /// A waiter has a mark and needs its entry no longer.
    pub(super) fn give_back_entry(self: &Arc<Self>, name: &LockName, holder: HolderId) {
        self.leave_and_call(name, self.waits.take_entry(holder), false);
    }

    /// A waiter was granted the name, and has used up the mark in its row: it calls another one.
    pub(super) fn stop_waiting(self: &Arc<Self>, name: &LockName, holder: HolderId) {
        if let Some(waiter) = self.waits.remove(holder) {
            self.leave_and_call(name, waiter.entry, true);
        }
    }

    /// A waiter gives up. Returns whether it had a mark: once that is removed, another one is to be [called](Self::call_next).
    pub(super) fn leave_queue(self: &Arc<Self>, name: &LockName, holder: HolderId) -> bool {
        let Some(waiter) = self.waits.remove(holder) else {
            return false;
        };
        self.leave_and_call(name, waiter.entry, false);
        waiter.is_marked
    }

    /// Begins to call one of those who wait without a mark.
    pub(super) fn call_next(self: &Arc<Self>, name: &LockName) -> Option<JoinHandle<()>> {
        self.leave_and_call(name, None, true)
    }

    /// In the background: whoever loses a call asks a little later.
    fn leave_and_call(self: &Arc<Self>, name: &LockName, entry: Option<Entry>, calls: bool) -> Option<JoinHandle<()>> {
        let entry = entry.filter(|entry| !entry.session.has_ended());
        if entry.is_none() && !calls {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        let name = name.clone();
        let call = calls.then(|| self.statements.call_next(&name, rand::random_range(0..usize::MAX)));
        let shared = self.clone();
        Some(runtime.spawn(async move {
            let Ok(member) = shared.asking.member(None).await else {
                return;
            };
            // In this order, or it might call itself.
            let leave = async {
                if let Some(Entry { session, number }) =
                    entry.filter(|entry| Arc::ptr_eq(&entry.session, member.session()))
                {
                    let sql = shared.statements.leave_queue(&name, number);
                    let leaving = shared.run(&shared.asking, &member, sql);
                    // A waiter that enters in between has to learn that its entry was given back.
                    let left = sent_before(leaving, || {
                        if number.is_none() {
                            shared.waits.forget_entries(&name, &session);
                        }
                    });
                    drop(left.await);
                }
            };
            let call = async {
                if let Some(sql) = call {
                    drop(shared.run(&shared.asking, &member, sql).await);
                }
            };
            tokio::join!(leave, call);
        }))
    }
}

/// Polls a request once, which sends it, and calls `then` before it waits for the answer.
async fn sent_before<T>(request: impl Future<Output = T>, then: impl FnOnce()) -> T {
    let mut request = pin!(request);
    let answer = request.as_mut().now_or_never();
    then();
    match answer {
        Some(answer) => answer,
        None => request.await,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn what_was_given_back_is_forgotten_once_that_was_sent() {
        let done = Mutex::new(Vec::new());
        let request = async {
            done.lock().push("sent");
            std::future::pending::<()>().await;
        };
        let answer = sent_before(request, || done.lock().push("forgotten")).now_or_never();
        assert_eq!((answer, &done.lock()[..]), (None, &["sent", "forgotten"][..]));
    }
}
