//! In which order several locks are waited for.

use super::about;
use super::guard::MultiGuard;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::sync::Arc;

/// Several locks, sorted by name.
pub(super) struct Plan(Vec<Member>);

struct Member {
    lock: Lock,
    /// The lock's position in the order given.
    place: usize,
}

/// The outcome of one try.
#[derive(Debug)]
pub(super) enum Tried {
    Granted,
    Refused,
    Failed(Error),
}

impl Plan {
    /// # Errors
    /// If these locks can never be acquired together.
    pub(super) fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let mut members = Vec::new();
        for (place, lock) in locks.into_iter().enumerate() {
            lock.check_in_plan()?;
            members.push(Member { lock, place });
        }
        if members.is_empty() {
            let message = "no lock was given to acquire: give at least one";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        // Stable: equal names, of other servers, stay in the order given.
        members.sort_by(|one, other| one.lock.name().cmp(&other.lock.name()));
        check_distinct(&members)?;
        Ok(Self(members))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order in which they are waited for.
    pub(super) fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.0.iter().map(|member| &member.lock)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Lock> {
        self.0.get(index).map(|member| &member.lock)
    }

    pub(super) fn note_refusal(&self, index: usize) {
        if let Some(lock) = self.get(index)
            && let Some(name) = lock.name()
        {
            lock.locker().shared().refusals.note(name);
        }
    }

    /// True if a lock was refused a moment ago, so that trying all at once would probably fail.
    pub(super) fn was_refused_just_now(&self) -> bool {
        let refused = |lock: &Lock| {
            lock.name()
                .is_some_and(|name| lock.locker().shared().refusals.has(name))
        };
        self.locks().any(refused)
    }

    /// The guard of all locks, which are held in the order of the plan.
    pub(super) fn guard(&self, held: Vec<Guard>) -> MultiGuard {
        let mut guards: Vec<_> = self.0.iter().map(|member| member.place).zip(held).collect();
        guards.sort_by_key(|(place, _)| *place);
        MultiGuard::new(guards.into_iter().map(|(_, guard)| guard).collect())
    }
}

fn check_distinct(members: &[Member]) -> Result<()> {
    for (index, member) in members.iter().enumerate() {
        let name = member.lock.name();
        let backend = |member: &Member| member.lock.locker().shared().backend.lock.clone();
        let mut same_name = members[..index]
            .iter()
            .rev()
            .take_while(|other| other.lock.name() == name);
        if same_name.any(|other| Arc::ptr_eq(&backend(other), &backend(member))) {
            let message = "the lock was given twice, and would wait for itself: give it once";
            return Err(about(&member.lock, Error::new(ErrorKind::Misconfigured, message)));
        }
    }
    Ok(())
}

/// Returns the number of locks that stay held after all were tried: those before the first refusal.
///
/// # Errors
/// The first failure, wherever it is: waiting does not cure it.
pub(super) fn held_after(tried: impl IntoIterator<Item = Tried>) -> Result<usize> {
    let mut held = None;
    let mut count = 0;
    for tried in tried {
        match tried {
            Tried::Failed(error) => return Err(error),
            Tried::Refused => held = held.or(Some(count)),
            Tried::Granted => {}
        }
        count += 1;
    }
    Ok(held.unwrap_or(count))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Locker, MemoryBackend};

    #[test]
    fn what_comes_after_the_first_refusal_is_not_kept() {
        use Tried::{Granted, Refused};
        assert_eq!(held_after([Granted, Granted]).unwrap(), 2);
        assert_eq!(held_after([Granted, Refused, Granted, Refused]).unwrap(), 1);
        assert_eq!(held_after([Refused, Granted]).unwrap(), 0);
        let failed = || Tried::Failed(Error::new(ErrorKind::Denied, "refused"));
        assert_eq!(held_after([Refused, failed()]).unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn names_are_sorted_by_bytes_and_equal_ones_of_two_servers_stay_in_order() {
        let (one, other) = (Locker::new(MemoryBackend::new()), Locker::new(MemoryBackend::new()));
        let other = other.with_label("other");
        let locks = [one.lock("ä"), other.lock("b"), one.lock("b"), one.lock("B")];
        let plan = Plan::new(locks).unwrap();
        let order: Vec<_> = plan
            .locks()
            .map(|lock| lock.name().unwrap().as_str().to_owned())
            .collect();
        assert_eq!(order, ["B", "b", "b", "ä"]);
        assert_eq!(plan.get(1).unwrap().options().label.as_deref(), Some("other"));
        let places: Vec<_> = plan.0.iter().map(|member| member.place).collect();
        assert_eq!(places, [3, 1, 2, 0]);
    }

    #[test]
    fn none_and_one_twice_are_misconfigured() {
        let locks = Locker::new(MemoryBackend::new());
        let other = Locker::new(MemoryBackend::new());
        let error = |locks: Vec<Lock>| Plan::new(locks).err().expect("it cannot work");
        assert_eq!(error(Vec::new()).kind(), ErrorKind::Misconfigured);
        let twice = error(vec![locks.lock("a"), other.lock("a"), locks.clone().lock("a")]);
        assert_eq!(twice.kind(), ErrorKind::Misconfigured);
        assert_eq!(twice.name().unwrap().as_str(), "a");
        assert_eq!(
            error(vec![locks.lock("a"), locks.lock("")]).kind(),
            ErrorKind::InvalidName
        );
        let minimum = locks.lock("b").hold_at_least(std::time::Duration::from_secs(1));
        assert_eq!(error(vec![locks.lock("a"), minimum]).kind(), ErrorKind::Misconfigured);
    }
}
