//! What is known of one acquisition, shared by the calls that ask for it and the task that works on it.
//!
//! A caller may go at any moment; the task stays until nothing is left at the server that nobody answers for.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Busy, HolderId};
use lock_core::{Error, FencingToken};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::connection::{Delete, Session};

/// How many ids of ended acquisitions are remembered, so that none of them begins again.
const RETIRED: usize = 1024;

/// Which of a claim's tasks, one after the other, works on it.
pub(crate) type TaskNumber = u64;

/// How far an acquisition is.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// No task works on it.
    Idle,
    /// Its task waits for the server's answer.
    Asking,
    /// Its node queues behind another one.
    Queued,
    Held(Arc<Held>),
    /// Its task has ended.
    Over(Outcome),
}

/// How the task ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Nothing is left.
    Busy(Busy),
    /// Nothing is left, as somebody asked for.
    Undone,
    Failed(Error),
    SessionEnded,
    /// There was a hold, and it was released.
    Released,
    /// There was a hold, and it ended otherwise.
    NotOurs,
}

/// A granted node.
pub(crate) struct Held {
    pub(crate) session: Arc<Session>,
    pub(crate) path: String,
    pub(crate) token: FencingToken,
    releases: mpsc::UnboundedSender<Delete>,
    releasing: AtomicBool,
    reported: AtomicBool,
}

impl Held {
    pub(crate) fn new(
        session: Arc<Session>,
        path: String,
        token: FencingToken,
        releases: mpsc::UnboundedSender<Delete>,
    ) -> Self {
        Self {
            session,
            path,
            token,
            releases,
            releasing: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// Whether the caller is the first one to be told how the release ended.
    pub(crate) fn report_release(&self) -> bool {
        !self.reported.swap(true, Ordering::SeqCst)
    }

    /// Whether a delete was sent, or is about to be.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing.load(Ordering::SeqCst)
    }

    /// Sends the delete, at once, so that whatever this process sends afterwards comes after it.
    pub(crate) fn begin_release(&self) {
        if !self.releasing.swap(true, Ordering::SeqCst) {
            let delete = self.session.delete(&self.path);
            // Where nobody receives it, the hold has ended already.
            let _ = self.releases.send(delete);
        }
    }
}

/// One acquisition.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) request: AcquireRequest,
    pub(crate) directory: String,
    progress: watch::Sender<Progress>,
    /// Set once nothing of it may stay.
    pub(crate) undo: watch::Sender<bool>,
    /// How many of its holds are in somebody's hands.
    handles: AtomicUsize,
}

/// Changed by its last task alone: an earlier one may wake up on a runtime that stood still.
#[derive(Debug)]
struct Progress {
    task: TaskNumber,
    /// What that task works for.
    session: Option<Arc<Session>>,
    stage: Stage,
    /// Whether a node of it may be at the server.
    residue: bool,
}

impl Progress {
    fn rests(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Over(_))
    }
}

impl Claim {
    fn new(request: AcquireRequest, directory: String) -> Self {
        Self {
            request,
            directory,
            progress: watch::Sender::new(Progress {
                task: 0,
                session: None,
                stage: Stage::Idle,
                residue: false,
            }),
            undo: watch::Sender::new(false),
            handles: AtomicUsize::new(0),
        }
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.request.holder()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.progress.borrow().stage.clone()
    }

    /// Whether a node of it may be at the server.
    pub(crate) fn has_residue(&self) -> bool {
        self.progress.borrow().residue
    }

    /// The session of the task that works on it, if one does.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.progress.borrow().session.clone()
    }

    pub(crate) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it was the last one.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// The first stage that answers, or `None` when none does: `limit` after the task began to ask, or after the
    /// request was given up, for a node in the queue may take any time.
    pub(crate) async fn answer(&self, limit: Duration) -> Option<Stage> {
        let mut progress = self.progress.subscribe();
        loop {
            let stage = progress.borrow_and_update().stage.clone();
            let queued = match stage {
                Stage::Held(_) | Stage::Over(_) => return Some(stage),
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

    /// How the task ended, or `None` when it has not within `limit`.
    pub(crate) async fn outcome(&self, limit: Duration) -> Option<Outcome> {
        let mut progress = self.progress.subscribe();
        match timeout(limit, progress.wait_for(Progress::rests)).await {
            Ok(Ok(progress)) => match &progress.stage {
                Stage::Over(outcome) => Some(outcome.clone()),
                _ => Some(Outcome::Undone),
            },
            _ => None,
        }
    }

    /// The number of the task that the caller is to start on this session, unless one works already.
    pub(crate) fn begin(&self, session: &Arc<Session>) -> Option<TaskNumber> {
        let mut number = None;
        self.progress.send_if_modified(|progress| {
            if progress.rests() {
                progress.task += 1;
                progress.session = Some(session.clone());
                progress.stage = Stage::Asking;
                number = Some(progress.task);
            }
            number.is_some()
        });
        number
    }

    /// Tells how far a task is. False where another one works now.
    pub(crate) fn advance(&self, task: TaskNumber, stage: Stage) -> bool {
        self.progress.send_if_modified(|progress| {
            let is_last = progress.task == task;
            if is_last {
                progress.stage = stage;
                if progress.rests() {
                    progress.session = None;
                }
            }
            is_last
        })
    }

    pub(crate) fn set_residue(&self, task: TaskNumber, residue: bool) {
        self.progress.send_if_modified(|progress| {
            if progress.task == task {
                progress.residue = residue;
            }
            // Nobody waits for it.
            false
        });
    }

    /// The task on this session is not heard of again, or too late.
    pub(crate) fn forsake(&self, session: &Arc<Session>) {
        self.progress.send_if_modified(|progress| {
            let is_of_it = progress.session.as_ref().is_some_and(|own| Arc::ptr_eq(own, session));
            if is_of_it {
                progress.task += 1;
                progress.session = None;
                progress.stage = Stage::Over(Outcome::SessionEnded);
            }
            is_of_it
        });
    }
}

/// The acquisitions of a backend that may have something at the server.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    open: HashMap<HolderId, Arc<Claim>>,
    retired: VecDeque<HolderId>,
}

impl Claims {
    /// Whether nothing may begin under this id any more.
    pub(crate) fn is_retired(&self, holder: HolderId) -> bool {
        self.book().retired.contains(&holder)
    }

    /// The claim of this request, a new one if need be; `None` when its id is retired.
    pub(crate) fn open(&self, request: &AcquireRequest, directory: impl FnOnce() -> String) -> Option<Arc<Claim>> {
        let mut book = self.book();
        if book.retired.contains(&request.holder()) {
            return None;
        }
        Some(match book.open.entry(request.holder()) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(Arc::new(Claim::new(request.clone(), directory()))).clone(),
        })
    }

    pub(crate) fn get(&self, holder: HolderId) -> Option<Arc<Claim>> {
        self.book().open.get(&holder).cloned()
    }

    /// Forgets a claim of which nothing is left.
    pub(crate) fn close(&self, holder: HolderId) {
        self.book().open.remove(&holder);
    }

    /// Forgets a claim of which nothing is left, and lets none begin under its id again.
    pub(crate) fn retire(&self, holder: HolderId) {
        let mut book = self.book();
        book.open.remove(&holder);
        if !book.retired.contains(&holder) {
            if book.retired.len() == RETIRED {
                book.retired.pop_front();
            }
            book.retired.push_back(holder);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let book = self.book();
        book.open.is_empty() && book.retired.is_empty()
    }

    /// Every critical section leaves its data whole.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
