//! A lease that rests on several others: the hold of a quorum.

use std::cmp::Reverse;
use std::time::Duration;

use super::{Armed, Lease, Phase};
use crate::backend::rules;
use crate::backend::sent_at::SentAt;
use crate::error::{Error, ErrorKind, Result};
use crate::time::LeaseInstant;

impl Lease {
    /// Arms the lease of a hold that rests on several others and needs `needed` of them. It ends at the `needed`th
    /// latest of the ends of those `children` that are live. Call it again whenever one of them was armed. As with
    /// [`arm`](Self::arm), the end only moves forward.
    ///
    /// At its first arming, a fixed lease takes the `needed`th latest of the ends of the children's own terms. The
    /// sessions to which children are [bound](Self::bind_to_session) may end it earlier, and keep it while they live.
    ///
    /// Clears a suspicion that is older than the requests that armed `needed` children, or bound them to their
    /// sessions. Children that are suspect do not count.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], retryable, if too few children are live. [`ErrorKind::Lost`] when the lease is over.
    pub fn arm_by(&self, children: &[Self], needed: usize) -> Result<Armed> {
        let now = LeaseInstant::now();
        let children: Vec<_> = children.iter().filter_map(Self::live_terms).collect();
        let nth_latest = |end: fn(&LiveTerms) -> LeaseInstant| {
            let ends = children.iter().map(end);
            rules::nth_latest_end(ends, needed, now)
        };
        let (Some(end), Some(term_end)) = (nth_latest(|child| child.end), nth_latest(|child| child.term_end)) else {
            let message = format!("{} of {needed} leases are live", children.len());
            return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.0.name));
        };
        let armed_from = nth_largest(children.iter().map(|child| child.armed_from), needed, |at| *at).flatten();
        // Of those that are bound to no session, the request's ttl is the term.
        let session_terms = children.iter().map(|child| child.session_term.unwrap_or(Duration::MAX));
        let session_term = nth_largest(session_terms, needed, |term| *term);
        let heard_of = nth_largest(children.iter().filter_map(|child| child.heard_of), needed, SentAt::key);

        let mut record = self.lock(now);
        match record.phase {
            Phase::Unarmed => {
                record.phase = Phase::Live;
                record.term_end = Some(term_end);
            }
            Phase::Live if !self.0.fixed => record.term_end = record.term_end.max(Some(term_end)),
            Phase::Live => {}
            Phase::Releasing | Phase::Released => {
                return Err(Error::new(ErrorKind::Lost, "the hold was released meanwhile").with_name(&self.0.name));
            }
            Phase::Lost(cause) => return Err(self.lost(&record, cause).into()),
        }
        record.session_end = record.session_end.max(Some(end));
        record.session_term = session_term;
        if let Some(sent) = heard_of {
            record.trust(sent);
        }
        record.armed_from = record.armed_from.max(armed_from);
        drop(record);
        self.0.changed.notify_waiters();
        Ok(Armed(self.clone()))
    }

    /// The values of this lease that a lease resting on it needs, if this one is live.
    fn live_terms(&self) -> Option<LiveTerms> {
        let record = self.lock(LeaseInstant::now());
        (record.phase == Phase::Live).then_some(())?;
        Some(LiveTerms {
            term_end: record.term_end?,
            session_term: record.session_term,
            end: record.end()?,
            armed_from: record.armed_from,
            heard_of: record.heard_of.filter(|_| record.suspected.is_none()),
        })
    }
}

/// A live lease, as another one sees it.
struct LiveTerms {
    /// The end if its session lives on.
    term_end: LeaseInstant,
    /// The end if its session does not live on.
    end: LeaseInstant,
    /// The time for which its session outlives its last contact with the server, if it is bound to one.
    session_term: Option<Duration>,
    armed_from: Option<LeaseInstant>,
    /// The moment when the latest request that proved the hold was sent. `None` if the hold is suspect.
    heard_of: Option<SentAt>,
}

/// The `nth` largest of them, counted from 1.
fn nth_largest<T, K: Ord>(values: impl Iterator<Item = T>, nth: usize, key: impl Fn(&T) -> K) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable_by_key(|value| Reverse(key(value)));
    values.into_iter().nth(nth.checked_sub(1)?)
}
