//! How a candidate is elected.

use std::time::Duration;

use super::Election;
use super::term::Term;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::options::wait::{Rest, WaitLimit};
use crate::runtime;
use crate::sync::time::{Instant, sleep_until};
use crate::time::{until, within};

/// A candidate pauses for this part of its TTL after each of its terms, so that another one is elected.
const PAUSE: u32 = 3;
/// Above this part of the TTL, a margin would end terms whose renewals take a fifth of it.
const LONGEST_MARGIN: u32 = 3;

impl Election {
    /// Waits until this candidate is elected, however long that takes. After an earlier term of its own, it pauses first.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`](crate::Lock::acquire), and [`ErrorKind::Misconfigured`] if the [margin](Self::margin) is too long.
    ///
    /// # Cancel safety
    /// If it is dropped, it campaigns no more; what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign().await?;
    /// assert_eq!(term.run(async { 6 * 7 }).await?, 42); // dropped if the term ends
    /// term.resign().await?;
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self) -> Result<Term> {
        self.campaign_for(None).await
    }

    /// The same within a limit, of which the pause is a part.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] also if the limit ends within the pause.
    pub(crate) async fn campaign_for(&self, limit: Option<Duration>) -> Result<Term> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.check_margin()?;
        runtime::current()?;
        let shared = self.lock.locker().shared();
        shared.keeper.check_process()?;
        // Hears of a close from here on. The acquire reports it.
        let closing = shared.closing.notified();
        shared.check_open()?;
        let pauses_until = self.candidate.pauses_until().filter(|end| Instant::now() < *end);
        if let Some(pauses_until) = pauses_until {
            tokio::select! {
                biased;
                () = closing => {}
                () = until(deadline) => return Err(self.still_pausing(limit.unwrap_or_default())),
                () = sleep_until(pauses_until) => {}
            }
        }
        let wait = match (limit, deadline) {
            (Some(limit), Some(deadline)) if !limit.is_zero() => WaitLimit::Rest(Rest {
                left: deadline.saturating_duration_since(Instant::now()),
                limit,
                locks: 1,
                has_waited: pauses_until.is_some(),
            }),
            (Some(limit), _) => WaitLimit::Within(limit),
            (None, _) => WaitLimit::Forever,
        };
        let guard = self.lock.wait(wait).await?;
        if let Err(error) = self.check_margin_of(&guard) {
            let _ = guard.release().await;
            return Err(error);
        }
        let options = self.lock.options();
        let (pause, value) = (options.ttl / PAUSE, options.label);
        Ok(Term::begin(guard, value, &self.candidate, pause, self.is_measured))
    }

    fn check_margin(&self) -> Result<()> {
        let (options, margin) = (self.lock.options(), self.margin);
        let longest = options.ttl / LONGEST_MARGIN;
        let message = match options.maximum_hold {
            Some(maximum) if !margin.is_zero() && maximum <= margin => {
                format!(
                    "a margin of {margin:?} leaves nothing of a maximum hold of {maximum:?}: choose a shorter margin"
                )
            }
            _ if margin <= longest => return Ok(()),
            _ => format!("a margin of {margin:?} is too long: choose at most {longest:?}, or a longer ttl"),
        };
        Err(self.error(ErrorKind::Misconfigured, message))
    }

    /// Its session may end the lease earlier than the TTL says, which only the grant shows.
    fn check_margin_of(&self, guard: &Guard) -> Result<()> {
        let margin = self.margin;
        let term = guard.share().hold().lease.term(self.lock.options().ttl);
        let longest = term / LONGEST_MARGIN;
        if margin <= longest {
            return Ok(());
        }
        let message = format!(
            "a margin of {margin:?} is too long, as the locks of this backend last for a session of {term:?}: choose at most \
             {longest:?}, or a longer session timeout"
        );
        Err(self.error(ErrorKind::Misconfigured, message))
    }

    fn still_pausing(&self, limit: Duration) -> Error {
        let message = format!(
            "not elected {}: the candidate pauses after its last term",
            within(limit)
        );
        self.error(ErrorKind::TimedOut, message)
    }

    fn error(&self, kind: ErrorKind, message: String) -> Error {
        let error = Error::new(kind, message);
        match self.lock.name() {
            Some(name) => error.with_name(name),
            None => error,
        }
    }
}
