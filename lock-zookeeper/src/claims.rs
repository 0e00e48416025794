//! The claims of a backend: what each holder id may have left at the server.
//!
//! The callers of an acquisition and its task share a claim. A caller may go at any moment; the task stays until the
//! node is gone, or until a hold owns it.
//!
//! These are not `lock_kit::claims`: what is left here is a node with the holder id in its name, which the task finds and deletes
//! itself over any connection of its session, and which ends with the session.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::Error;
use lock_core::backend::{AcquireRequest, Busy, HolderId, Lease, LostCause};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub(crate) use self::grant::{Grant, Token};
use crate::connection::{Room, Session};

mod grant;

/// The number of ids of ended acquisitions that are remembered, so that none begins again.
const RETIRED: usize = 1024;

/// Numbers the tasks that work on a claim, one after the other.
pub(crate) type TaskNumber = u64;

/// The stage of an acquisition.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// No task works on it.
    Idle,
    /// Its task waits for the server's answer.
    Asking,
    /// Its node queues behind another one.
    Queued,
    Granted(Arc<Grant>),
    /// Its task has ended.
    Ended(Outcome),
}

/// The outcome of the task.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Another holder has the lock, and nothing is left.
    Busy(Busy),
    /// The caller abandoned it, and nothing is left.
    Undone,
    Failed(Error),
    SessionEnded,
    /// The hold was released.
    Released,
    /// The hold ended otherwise.
    NotOurs,
}

/// One acquisition.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) request: AcquireRequest,
    pub(crate) directory: String,
    /// The name of its node, without the sequence.
    pub(crate) prefix: String,
    /// The lease of the guard of the moment: passes within the process change it.
    pub(crate) lease: watch::Sender<Lease>,
    progress: watch::Sender<Progress>,
    /// Set when the caller abandons the acquisition.
    pub(crate) undo: watch::Sender<bool>,
    /// The number of handles to its hold that are alive.
    handles: AtomicUsize,
    /// True if its caller has received the grant.
    was_received: AtomicBool,
    /// True if a kept node of it may be at the server, which outlasts the session.
    may_be_kept: AtomicBool,
}

/// Only the last task changes it: an earlier one may wake up on a runtime that nobody drove for a while.
#[derive(Debug)]
struct Progress {
    task: TaskNumber,
    /// The session of that task.
    session: Option<Arc<Session>>,
    stage: Stage,
    /// True if a node of it may be at the server.
    leftover: bool,
    /// The room that its node takes in the session.
    room: Option<Room>,
}

impl Progress {
    fn has_no_task(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Ended(_))
    }
}

impl Claim {
    fn new(request: AcquireRequest, directory: String, prefix: String) -> Self {
        Self {
            lease: watch::Sender::new(request.lease().clone()),
            request,
            directory,
            prefix,
            progress: watch::Sender::new(Progress {
                task: 0,
                session: None,
                stage: Stage::Idle,
                leftover: false,
                room: None,
            }),
            undo: watch::Sender::new(false),
            handles: AtomicUsize::new(0),
            was_received: AtomicBool::new(false),
            may_be_kept: AtomicBool::new(false),
        }
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.request.holder()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.progress.borrow().stage.clone()
    }

    /// Waits until the lease of the guard of the moment has ended.
    pub(crate) async fn lease_ended(&self) {
        let mut latest = self.lease.subscribe();
        loop {
            let lease = latest.borrow_and_update().clone();
            tokio::select! {
                // The sender lives as long as `self`.
                _ = latest.changed() => {}
                // A lease that was passed on ends as well.
                _ = lease.ended() => if !latest.has_changed().unwrap_or(false) {
                    return;
                },
            }
        }
    }

    /// The hold is gone: the guard of the moment learns of it.
    pub(crate) fn lose_hold(&self) {
        self.lease.borrow().lose(LostCause::NotHeld);
    }

    /// True if a node of it may be at the server.
    pub(crate) fn has_leftover(&self) -> bool {
        self.progress.borrow().leftover
    }

    /// The session of the task that works on it, if one does.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.progress.borrow().session.clone()
    }

    pub(crate) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    /// Its caller is told of the grant.
    pub(crate) fn note_received(&self) {
        self.was_received.store(true, Ordering::SeqCst);
    }

    pub(crate) fn was_received(&self) -> bool {
        self.was_received.load(Ordering::SeqCst)
    }

    /// A kept node is about to be made.
    pub(crate) fn note_kept(&self) {
        self.may_be_kept.store(true, Ordering::SeqCst);
    }

    pub(crate) fn may_be_kept(&self) -> bool {
        self.may_be_kept.load(Ordering::SeqCst)
    }

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    /// True for the last one.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// The first stage that answers the caller, or `None` after `limit`. The limit counts from the last request to the
    /// server; for a node in the queue, which may wait for any time, from when the request was given up.
    pub(crate) async fn answer(&self, limit: Duration) -> Option<Stage> {
        let mut progress = self.progress.subscribe();
        loop {
            let stage = progress.borrow_and_update().stage.clone();
            let queued = match stage {
                Stage::Granted(_) | Stage::Ended(_) => return Some(stage),
                Stage::Queued => true,
                Stage::Idle | Stage::Asking => false,
            };
            let overdue = async {
                if queued {
                    self.request.given_up().await;
                }
                sleep(limit).await;
            };
            tokio::select! {
                // The sender lives as long as `self`.
                _ = progress.changed() => {}
                () = overdue => return None,
            }
        }
    }

    /// The outcome of the task, or `None` if it has not ended within `limit`.
    pub(crate) async fn outcome(&self, limit: Duration) -> Option<Outcome> {
        let mut progress = self.progress.subscribe();
        match timeout(limit, progress.wait_for(Progress::has_no_task)).await {
            Ok(Ok(progress)) => match &progress.stage {
                Stage::Ended(outcome) => Some(outcome.clone()),
                _ => Some(Outcome::Undone),
            },
            _ => None,
        }
    }

    /// Its node is about to go: another one may take its room.
    pub(crate) fn leave(&self) {
        if let Some(room) = &self.progress.borrow().room {
            room.leave();
        }
    }

    /// The number of the task that the caller must start on this session; `None` if a task works already.
    pub(crate) fn begin(&self, session: &Arc<Session>, mut room: Option<Room>) -> Option<TaskNumber> {
        let mut number = None;
        self.progress.send_if_modified(|progress| {
            if progress.has_no_task() {
                progress.task += 1;
                progress.session = Some(session.clone());
                progress.room = room.take();
                progress.stage = Stage::Asking;
                number = Some(progress.task);
            }
            number.is_some()
        });
        number
    }

    /// Publishes a task's stage. False if the task was detached.
    pub(crate) fn advance(&self, task: TaskNumber, stage: Stage) -> bool {
        self.progress.send_if_modified(|progress| {
            let is_last = progress.task == task;
            if is_last {
                progress.stage = stage;
                if progress.has_no_task() {
                    progress.session = None;
                    // A node that could not be deleted keeps its room as long as its claim is known.
                    progress.room.take_if(|_| !progress.leftover);
                }
            }
            is_last
        })
    }

    pub(crate) fn set_leftover(&self, task: TaskNumber, leftover: bool) {
        self.progress.send_if_modified(|progress| {
            if progress.task == task {
                progress.leftover = leftover;
            }
            // Nobody waits for it.
            false
        });
    }

    /// Detaches the task on this session: whatever it publishes later is ignored.
    pub(crate) fn detach_task(&self, session: &Arc<Session>) {
        self.progress.send_if_modified(|progress| {
            let is_of_it = progress.session.as_ref().is_some_and(|own| Arc::ptr_eq(own, session));
            if is_of_it {
                progress.task += 1;
                progress.session = None;
                progress.room = None;
                progress.stage = Stage::Ended(Outcome::SessionEnded);
            }
            is_of_it
        });
    }
}

/// The acquisitions of a backend that may have something at the server.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    open: HashMap<HolderId, Arc<Claim>>,
    retired: VecDeque<HolderId>,
}

impl Claims {
    /// True if the id was released or abandoned.
    pub(crate) fn is_retired(&self, holder: HolderId) -> bool {
        self.0.lock().retired.contains(&holder)
    }

    /// The claim of this request; if there is none, a new one with this directory and prefix. `None` if its id is retired.
    pub(crate) fn open(&self, request: &AcquireRequest, new: impl FnOnce() -> (String, String)) -> Option<Arc<Claim>> {
        let mut registry = self.0.lock();
        if registry.retired.contains(&request.holder()) {
            return None;
        }
        Some(match registry.open.entry(request.holder()) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                let (directory, prefix) = new();
                entry
                    .insert(Arc::new(Claim::new(request.clone(), directory, prefix)))
                    .clone()
            }
        })
    }

    pub(crate) fn get(&self, holder: HolderId) -> Option<Arc<Claim>> {
        self.0.lock().open.get(&holder).cloned()
    }

    /// Forgets a claim that left nothing.
    pub(crate) fn close(&self, holder: HolderId) {
        self.0.lock().open.remove(&holder);
    }

    /// Forgets a claim that left nothing, and its id never begins again.
    pub(crate) fn retire(&self, holder: HolderId) {
        let mut registry = self.0.lock();
        registry.open.remove(&holder);
        if !registry.retired.contains(&holder) {
            if registry.retired.len() == RETIRED {
                registry.retired.pop_front();
            }
            registry.retired.push_back(holder);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let registry = self.0.lock();
        registry.open.is_empty() && registry.retired.is_empty()
    }
}
