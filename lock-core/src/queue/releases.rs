//! This process's releases of one name that are under way, and the tries that wait for them.

use crate::sync::oneshot;

/// The releases under way, of any mode. A try that was refused may have overtaken one of them. It asks again when all
/// releases are answered that began before it. It does not wait until no release is under way, which may never happen
/// on a busy name.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// The number of the latest round. A try that waits ends it, and those that begin later are of the next one.
    round: u64,
    /// The number of releases of the latest round that are under way.
    latest: usize,
    /// The earlier rounds with releases under way, in order.
    earlier: Vec<Round>,
    /// Tries, by the last round that they wait for. Each is woken by dropping its sender.
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    under_way: usize,
}

/// The tries to wake, outside the mutex.
pub(super) type Answered = Vec<(u64, oneshot::Sender<()>)>;

impl Releases {
    pub(super) fn is_empty(&self) -> bool {
        self.latest == 0 && self.earlier.is_empty()
    }

    /// Counts a release that begins, and returns the number of its round.
    pub(super) fn begin(&mut self) -> u64 {
        self.latest += 1;
        self.round
    }

    /// A release of this round was answered, or its tries may not wait for it any more.
    pub(super) fn end(&mut self, round: u64) -> Answered {
        if round == self.round {
            self.latest -= 1;
        } else if let Some(index) = self.earlier.iter().position(|earlier| earlier.number == round) {
            self.earlier[index].under_way -= 1;
            if self.earlier[index].under_way == 0 {
                self.earlier.remove(index);
            }
        }
        if self.waiting.is_empty() {
            return Answered::new();
        }
        let first = self.earlier.first().map_or(self.round, |earlier| earlier.number);
        let (answered, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(last, _)| *last < first);
        self.waiting = waiting;
        answered
    }

    /// Is closed as soon as all are answered that are under way now; `None` if none is.
    pub(super) fn all_answered(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.latest > 0 {
            self.earlier.push(Round {
                number: self.round,
                under_way: std::mem::take(&mut self.latest),
            });
            self.round += 1;
        }
        let last = self.earlier.last()?.number;
        let (sender, receiver) = oneshot::channel();
        if self.waiting.len() == self.waiting.capacity() {
            // Tries that have gone, before there is room for more: a release may stay unanswered for long.
            self.waiting.retain(|(_, waiting)| !waiting.is_closed());
            // Twice the space, so that the next try does not check all of them again.
            self.waiting.reserve(self.waiting.len());
        }
        self.waiting.push((last, sender));
        Some(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(receiver: &mut oneshot::Receiver<()>) -> bool {
        matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn a_try_waits_for_those_before_it_and_no_later_ones() {
        let mut releases = Releases::default();
        assert!(releases.all_answered().is_none());
        let (one, other) = (releases.begin(), releases.begin());
        let mut first = releases.all_answered().unwrap();
        let later = releases.begin();
        let mut second = releases.all_answered().unwrap();
        let mut third = releases.all_answered().unwrap();
        drop(releases.end(one));
        assert!(!is_closed(&mut first));
        drop(releases.end(other));
        assert!(is_closed(&mut first) && !is_closed(&mut second));
        let last = releases.begin();
        drop(releases.end(later));
        assert!(is_closed(&mut second) && is_closed(&mut third) && !releases.is_empty());
        drop(releases.end(last));
        assert!(releases.is_empty() && releases.all_answered().is_none());
    }

    #[test]
    fn tries_that_have_gone_are_forgotten_while_a_release_is_unanswered() {
        let mut releases = Releases::default();
        let release = releases.begin();
        let mut patient = releases.all_answered().unwrap();
        for _ in 0..10_000 {
            drop(releases.all_answered());
        }
        assert!(releases.waiting.len() < 10, "{} are left", releases.waiting.len());
        drop(releases.end(release));
        assert!(is_closed(&mut patient));
    }

    #[test]
    fn a_later_round_that_ends_first_wakes_nobody_of_an_earlier_one() {
        let mut releases = Releases::default();
        let early = releases.begin();
        let mut first = releases.all_answered().unwrap();
        let late = releases.begin();
        let mut second = releases.all_answered().unwrap();
        drop(releases.end(late));
        assert!(!is_closed(&mut first) && !is_closed(&mut second));
        drop(releases.end(early));
        assert!(is_closed(&mut first) && is_closed(&mut second));
    }
}
