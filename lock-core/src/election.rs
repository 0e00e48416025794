//! Leader election: of several candidates one leads, and another one takes over when its term ends.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::task::Poll;
use std::time::Duration;

use self::candidate::Candidate;
use self::observer::Observer;
pub use self::state::ElectionState;
use self::term::Term;
use crate::error::Result;
use crate::lock::Lock;
use crate::locker::Locker;
use crate::sync::Arc;
use crate::watch::Watch;

mod campaign;
mod candidate;
pub(crate) mod observer;
mod state;
pub(crate) mod term;

/// A candidate in an election, or somebody who only observes it. Owned and cheap to clone; made by [`Locker::election`].
/// Clones are the same candidate.
///
/// An election is a lock: the leader holds it, the fencing token is the *term*, and the label is the leader's *value*. So
/// nobody leads without a lease, terms grow, and if the leader's process dies, another candidate is elected within the TTL.
/// The election and [`Locker::lock`] of the same name exclude each other.
///
/// - **One term after the other.** [`lead`](Self::lead) calls its closure for each term. It begins a call only after the
///   future of the call before has returned or was dropped.
/// - **Resigning.** Another candidate that waits is elected first, also one in another process. After each of its terms a
///   candidate pauses for a third of its TTL before it campaigns again. An election does not pass between candidates of one
///   process.
/// - **Loss.** After a loss the candidate campaigns again, after the same pause.
/// - **Observers** see terms in order and see none twice. They surely see a term that lasts longer than a third of the TTL. If a
///   server loses its data, as ZooKeeper can, terms start again: see [`Observer::changed`].
///
/// A leader that was paused may act after its term has ended: see
/// [what no lock service can promise](https://docs.rs/lock-core/latest/lock_core/#what-no-lock-service-can-promise). Give the term to the resource that the leader
/// writes to, and have it reject earlier ones.
///
/// # Examples
/// ```
/// # use std::ops::ControlFlow;
/// # use std::time::Duration;
/// # use lock_core::{Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let election = locks.election("scheduler").value("http://10.0.0.7:8080").ttl(Duration::from_secs(10));
/// let leads = election.lead(|term| async move {
///     println!("elected, term {}", term.token());
///     // Work as the leader. This future is dropped at its next await when the term ends.
///     ControlFlow::Break("done") // resign, and do not campaign again
/// });
/// assert_eq!(leads.await?, "done");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
    margin: Duration,
    is_measured: bool,
    candidate: Arc<Candidate>,
}

impl Locker {
    /// The election with this name: this process as a candidate or as an observer. Does no I/O; the calls that need the
    /// server report an invalid name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign().await?;
    /// term.check()?; // before each step that only the leader may do
    /// term.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            // Without passes, the server's queue decides, whichever process a candidate is in.
            lock: self.clone().with_passes(0).lock(name).with_token_shown(),
            margin: Duration::ZERO,
            is_measured: false,
            candidate: Arc::default(),
        }
    }
}

impl Election {
    /// Sets the value that the candidate proclaims when it is elected, such as its address: at most 255 bytes, of which a
    /// quorum shows 245. Defaults to the locker's label.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let _term = locks.election("a").value("http://10.0.0.7:8080").campaign().await?;
    /// let leader = locks.election("a").observe().changed().await?;
    /// assert_eq!(leader.value(), Some("http://10.0.0.7:8080"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn value(mut self, value: impl Into<Arc<str>>) -> Self {
        self.lock = self.lock.label(value);
        self
    }

    /// Sets the TTL: how long nobody leads after the leader's process died. Defaults to that of the locker. Observers ask
    /// the server every third of their TTL.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("a").ttl(Duration::from_secs(10)).campaign().await?;
    /// assert!(term.valid_for() <= Duration::from_secs(9)); // a tenth less, since clocks differ
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Drops the future of [`lead`](Self::lead) this long before the lease ends, for work that needs time to stop: threads and
    /// tasks that it started. `lead` resigns when that time is over. Defaults to zero.
    ///
    /// At most a third of the TTL. On ZooKeeper and with PostgreSQL's `strategy=session` it is also at most a third of the session
    /// timeout, since a lease lasts no longer than its session. There, a longer one is refused after the election.
    ///
    /// The term's [`Watch`] does not show the margin. [`Watch::is_held`] stays true within it, and a renewal within it extends the
    /// lease, though `lead` resigns. So stop threads and tasks by something that the future owns and drops, such as the drop guard
    /// of a cancellation token. There is no margin if the closure's future returns, or if the future of `lead` is dropped: then the
    /// candidate resigns at once.
    ///
    /// The longer it is, the shorter are the round trips of a renewal that a term survives: 0.4 of the TTL without a margin, and
    /// 0.23 of it with a third. Where a session renews, these are parts of the session timeout. On a quorum of such nodes, a third
    /// leaves 0.07 of it, and a fifth 0.26. All these figures are calculated.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("a").ttl(Duration::from_secs(10)).margin(Duration::from_secs(4));
    /// assert!(election.campaign().await.is_err()); // renewals may come later than that
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Limits each term to this time after its election. Then the term is lost, by
    /// [`LostCause::MaximumHold`](crate::LostCause::MaximumHold), and the name is released. So a leader whose work hangs does not lead for
    /// ever, and leaders take turns. The candidate then pauses and campaigns again, as after any loss. Must be longer than the
    /// [margin](Self::margin). Off by default.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, LostCause, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("scheduler").hold_at_most(Duration::from_millis(50));
    /// let term = election.campaign().await?;
    /// let hung = std::future::pending::<()>();
    /// assert_eq!(term.run(hung).await.unwrap_err().cause(), LostCause::MaximumHold);
    /// locks.election("scheduler").campaign().await?.resign().await?; // another candidate leads
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_at_most(mut self, maximum: Duration) -> Self {
        self.lock = self.lock.hold_at_most(maximum);
        self
    }

    /// Reports the gauge `polylock_leader`, with the election's name as its label, if the feature `metrics` is on: how many
    /// terms this process has, 1 while it leads. A term that was lost counts until it is dropped. Off by default, as names are no labels where there may be any number of them.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let _term = locks.election("scheduler").measured().campaign().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.is_measured = true;
        self
    }

    /// Campaigns, and calls `work` with each term that it wins, until a call returns [`ControlFlow::Break`]: then it resigns
    /// and returns the value. After [`ControlFlow::Continue`] it resigns, and after a loss it has nothing to resign; both
    /// times it pauses for a third of the TTL and campaigns again.
    ///
    /// The future of a call is dropped when its term ends; the term is checked before each poll. This stops only the
    /// future, not tasks, threads or requests that it started: see [`margin`](Self::margin). To stop leading from outside, drop the
    /// future of `lead`.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// If it is dropped, the future of `work` is dropped first, and the candidate resigns in the background.
    /// [`Locker::shutdown`] waits for that.
    ///
    /// # Examples
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # async fn write(_: lock_core::FencingToken) {}
    /// let election = locks.election("scheduler");
    /// let leads = election.lead(|term| async move {
    ///     write(term.token()).await;
    ///     ControlFlow::Break(())
    /// });
    /// leads.await?;
    /// # Ok(()) }
    /// ```
    pub async fn lead<T, W>(&self, mut work: impl FnMut(Watch) -> W) -> Result<T>
    where
        W: Future<Output = ControlFlow<T>>,
    {
        loop {
            let term = self.campaign().await?;
            // Drops the work before it returns, whatever comes of it.
            match self.run(&term, work(term.watch())).await {
                // The work is done, whatever the server answers to the release.
                Some(ControlFlow::Break(value)) => {
                    let _ = term.resign().await;
                    return Ok(value);
                }
                Some(ControlFlow::Continue(())) => {
                    let _ = term.resign().await;
                }
                None => {
                    // Nobody else is elected while the work stops.
                    term.outlast(self.margin).await;
                    drop(term);
                }
            }
        }
    }

    /// A view of who leads, term by term. Needs no campaign.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign().await?;
    /// let mut seen = locks.election("scheduler").observe();
    /// assert_eq!(seen.changed().await?.term(), term.token());
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Observer {
        Observer::new(self.clone())
    }

    /// Returns whether this candidate leads now, by this process's clock and without any network.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("scheduler");
    /// let term = election.campaign().await?;
    /// assert!(election.is_leader());
    /// term.resign().await?;
    /// assert!(!election.is_leader());
    /// # Ok(()) }
    /// ```
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Its term, if it leads now. A forked child has none, and must not touch its parent's state.
    fn term(&self) -> Option<Watch> {
        let keeper = &self.lock.locker().shared().keeper;
        keeper.check_process().ok().and_then(|()| self.candidate.term())
    }

    /// Polls the work until the term ends, and drops it. `None` if the term ended first.
    async fn run<F: Future>(&self, term: &Term, work: F) -> Option<F::Output> {
        let ended = term.ended(self.margin);
        tokio::pin!(work, ended);
        poll_fn(|context| {
            if term.valid_for() <= self.margin {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            ended.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}
