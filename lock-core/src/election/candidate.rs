//! One candidate of this process, which the clones of an election share.

use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Notify};
use crate::token::FencingToken;
use crate::watch::Watch;

#[derive(Debug, Default)]
pub(super) struct Candidate {
    state: Mutex<State>,
    /// Told when it is elected.
    pub(super) elected: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Its latest term, which may be over.
    latest: Option<Elected>,
    pauses_until: Option<Instant>,
}

/// A term that it was elected for.
#[derive(Clone, Debug)]
struct Elected {
    watch: Watch,
    /// The value that it proclaimed.
    value: Option<Arc<str>>,
    is_over: bool,
}

impl Candidate {
    /// From here on it leads.
    pub(super) fn begin(&self, watch: Watch, value: Option<Arc<str>>) {
        let over = self.ended_term();
        let mut state = self.state.lock();
        // A clone that was granted the next term may have come here before. A term that is over counts no more: a server that lost
        // its data grants smaller ones.
        let is_latest = state.latest.as_ref().is_none_or(|latest| {
            let latest = latest.watch.token();
            latest < watch.token() || over == Some(latest)
        });
        if is_latest {
            state.latest = Some(Elected {
                watch,
                value,
                is_over: false,
            });
        }
        drop(state);
        self.elected.notify_waiters();
    }

    /// Its latest term, which may be over, and what it proclaimed.
    pub(super) fn latest(&self) -> Option<(FencingToken, Option<Arc<str>>)> {
        let state = self.state.lock();
        let latest = state.latest.as_ref()?;
        Some((latest.watch.token(), latest.value.clone()))
    }

    /// This term is over, and it does not campaign again before that time.
    pub(super) fn end(&self, term: FencingToken, pauses_until: Option<Instant>) {
        let mut state = self.state.lock();
        // A term of a clone may have begun meanwhile.
        let latest = state.latest.as_mut().filter(|latest| latest.watch.token() == term);
        if let Some(latest) = latest {
            latest.is_over = true;
        }
        state.pauses_until = state.pauses_until.max(pauses_until);
    }

    pub(super) fn pauses_until(&self) -> Option<Instant> {
        self.state.lock().pauses_until
    }

    /// The term in which it leads now.
    pub(super) fn term(&self) -> Option<Watch> {
        let latest = self.state.lock().latest.clone()?;
        // Outside the lock.
        latest.leads().then_some(latest.watch)
    }

    /// Its latest term, if that is over.
    fn ended_term(&self) -> Option<FencingToken> {
        let latest = self.state.lock().latest.clone()?;
        (!latest.leads()).then(|| latest.watch.token())
    }

    /// True if `term` is this candidate's latest term.
    pub(super) fn had(&self, term: FencingToken) -> bool {
        let state = self.state.lock();
        state.latest.as_ref().is_some_and(|latest| latest.watch.token() == term)
    }
}

impl Elected {
    fn leads(&self) -> bool {
        !self.is_over && !self.watch.valid_for().is_zero()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::locker::Locker;
    use crate::memory::MemoryBackend;

    #[tokio::test]
    async fn a_smaller_term_counts_once_the_one_before_is_over() {
        let floor = FencingToken::new(1000).unwrap();
        let before = Locker::new(MemoryBackend::new()).with_token_floor(floor);
        let former = before.lock("a").acquire().await.unwrap();
        let next = Locker::new(MemoryBackend::new()).lock("a").acquire().await.unwrap();
        assert!(next.token() < former.token(), "the server has lost its data");
        let candidate = Candidate::default();
        let term = || candidate.term().map(|term| term.token());
        candidate.begin(former.watch(), None);
        candidate.begin(next.watch(), None);
        assert_eq!(term(), Some(former.token()), "a clone was granted the next term before");
        former.release().await.unwrap();
        candidate.begin(next.watch(), None);
        assert_eq!(term(), Some(next.token()));
    }
}
