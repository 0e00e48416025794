//! The clean-up in the background: it ends votes that nobody wants any more.

use std::fmt;
use std::sync::Arc;

use lock_core::backend::{Attempt, ReleaseOptions, until_answered};
use lock_core::{Error, ErrorKind};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::client::Client;
use crate::votes::{Call, Vote, Votes};

/// The tasks of a quorum, and what no runtime drives at the moment.
pub(crate) struct CleanUp {
    left_over: Mutex<Vec<Ending>>,
    running: watch::Sender<usize>,
}

/// Counts a task for as long as it lives.
struct Running<'a>(&'a watch::Sender<usize>);

/// A vote that is to be ended at its node.
struct Ending {
    votes: Arc<Votes>,
    vote: Arc<Vote>,
    /// Its acquire, if that is still under way.
    call: Option<Call>,
    /// If it is released instead of abandoned, how.
    release: Option<ReleaseOptions>,
}

/// Ends a vote in the background: waits for its acquire, then abandons it until its node answers, or until everything that it
/// left has expired. Until then a request that has no answer is waited for: dropped half-way, its outcome would be unknown. After
/// that it is dropped, so that a node that never answers keeps nothing of this process. An acquire that is dropped is abandoned
/// after that, which retires its id.
pub(crate) fn give_back(client: &Arc<Client>, votes: &Arc<Votes>, vote: &Arc<Vote>, call: Option<Call>) {
    end_in_background(client, votes, vote, call, None);
}

/// The same, without an acquire under way. Releases the vote's hold instead, if it says how.
pub(crate) fn end(client: &Arc<Client>, votes: &Arc<Votes>, vote: &Arc<Vote>, release: Option<ReleaseOptions>) {
    end_in_background(client, votes, vote, None, release);
}

/// Nothing of the vote is left at its node, or it ends by itself.
pub(crate) fn ended(client: &Client, votes: &Arc<Votes>, vote: &Arc<Vote>) {
    votes.forget(vote);
    client.tidy(votes);
}

/// Logs that the node did not end the vote for as long as it might live.
pub(crate) fn expired(vote: &Vote, error: &Error) {
    let (lock, node) = (vote.request.name().as_str(), vote.node + 1);
    let message = "a vote was not undone; it ends by itself";
    match error.is_retryable() {
        // As of each vote in an outage.
        true => tracing::debug!(target: "polylock", lock, node, %error, "{message}"),
        false => tracing::warn!(target: "polylock", lock, node, %error, "{message}"),
    }
}

pub(crate) fn unanswered() -> Error {
    let message = "the node did not answer for as long as the vote could live";
    Error::new(ErrorKind::Unavailable, message)
}

fn end_in_background(
    client: &Arc<Client>,
    votes: &Arc<Votes>,
    vote: &Arc<Vote>,
    call: Option<Call>,
    release: Option<ReleaseOptions>,
) {
    vote.control.give_up();
    votes.remove(vote);
    if vote.begin_clean_up() {
        let (votes, vote) = (votes.clone(), vote.clone());
        drive(
            client,
            Ending {
                votes,
                vote,
                call,
                release,
            },
        );
    }
}

/// Goes on with what was left over by runtimes that have ended.
pub(crate) fn go_on(client: &Arc<Client>) {
    let left_over = std::mem::take(&mut *client.clean_up.left_over.lock());
    for ending in left_over {
        drive(client, ending);
    }
}

/// Runs this in the background. Outside a runtime it does not run.
pub(crate) fn spawn(client: &Arc<Client>, task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        let client = client.clone();
        runtime.spawn(async move {
            let _running = client.clean_up.begin();
            task.await;
        });
    }
}

fn drive(client: &Arc<Client>, ending: Ending) {
    let mut driven = Driven {
        client: client.clone(),
        ending: Some(ending),
    };
    if Handle::try_current().is_ok() {
        spawn(client, async move { driven.run().await });
    }
}

/// An ending that a task drives. If the task ends before, it is left over.
struct Driven {
    client: Arc<Client>,
    ending: Option<Ending>,
}

impl Driven {
    async fn run(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        ending.run(&self.client).await;
        if let Some(ending) = self.ending.take() {
            ended(&self.client, &ending.votes, &ending.vote);
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(mut ending) = self.ending.take() {
            ending.call = None;
            self.client.clean_up.left_over.lock().push(ending);
        }
    }
}

impl Ending {
    /// Awaits its acquire, which was given up and so ends soon. Dropped half-way, it might still take effect, after the vote was
    /// ended: so it is dropped only when what it was to leave would have expired. Returns whether the node may have anything of it.
    async fn arrived(&mut self, client: &Client) -> bool {
        let Some(call) = self.call.take().filter(Call::is_here) else {
            return true;
        };
        let answer = client.watch(&self.vote, call.began, call.future);
        match timeout(self.vote.lasts_at_node(), answer).await {
            Ok(Ok(Attempt::Busy(_))) => self.vote.has_place,
            Ok(Err(error)) => !self.vote.request.was_certainly_not_sent(&error),
            _ => true,
        }
    }

    /// Ends the vote. A request that failed is repeated for as long as the vote may live, and one without an answer is then dropped.
    async fn run(&mut self, client: &Client) {
        if !self.arrived(client).await {
            return;
        }
        let (vote, node) = (&self.vote, &client.nodes[self.vote.node]);
        let mut why = unanswered();
        let end = || async {
            let ending = async {
                match (self.release, vote.hold()) {
                    (Some(how), Some(hold)) => hold.release(how).await.map(drop),
                    _ => node.backend.abandon(&vote.request).await,
                }
            };
            client.watch(vote, Instant::now(), ending).await
        };
        let may_repeat = |error: &Error| {
            why = error.clone();
            true
        };
        let ending = until_answered(end, may_repeat);
        match timeout(vote.lasts_at_node(), ending).await {
            Ok(Ok(())) => node.has_answered(),
            Ok(Err(error)) => expired(vote, &error),
            Err(_elapsed) => expired(vote, &why),
        }
    }
}

impl CleanUp {
    fn begin(&self) -> Running<'_> {
        self.running.send_modify(|running| *running += 1);
        Running(&self.running)
    }

    /// Waits until no task runs.
    pub(crate) async fn finished(&self) {
        let mut running = self.running.subscribe();
        // Cannot fail: this has the sender.
        let _ = running.wait_for(|running| *running == 0).await;
    }
}

impl Default for CleanUp {
    fn default() -> Self {
        Self {
            left_over: Mutex::default(),
            running: watch::Sender::new(0),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl fmt::Debug for CleanUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CleanUp")
            .field("running", &*self.running.borrow())
            .finish_non_exhaustive()
    }
}
