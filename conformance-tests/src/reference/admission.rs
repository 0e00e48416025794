//! Who may hold a name, and until when.

use std::time::Duration;

use lock_core::backend::{Mode, Permits, rules};
use tokio::time::Instant;

use super::state::{Entry, Hold, Request};
use crate::mutant::Mutant;

impl Entry {
    /// Whether the request is granted: it fits with all who hold the name, and with all who wait before it and fit in
    /// their order. If one of those does not fit, neither does anybody behind it.
    pub(super) fn admits(&self, mutant: Option<Mutant>, request: &Request) -> bool {
        if request.is_counted {
            return true;
        }
        let held = self.holds.iter().filter(|hold| Some(hold.holder) != request.replaces);
        let mut held: Vec<Mode> = held.map(|hold| hold.mode).collect();
        let is_queued = self.queue.iter().any(|waiter| waiter.holder == request.holder);
        match (mutant, request.mode) {
            (Some(Mutant::ReadersTakeTurns), Mode::Shared) if is_queued && !held.is_empty() => return false,
            (Some(Mutant::ReadersHeedWritersBehind), Mode::Shared)
                if self.queue.iter().any(|waiter| waiter.mode == Mode::Exclusive) =>
            {
                return false;
            }
            (Some(Mutant::UpgradeBesideReaders), Mode::Exclusive) if request.replaces.is_some() => return true,
            _ => {}
        }
        if !passes_the_queue(mutant, request) {
            for waiter in self.queue.iter().take_while(|waiter| waiter.holder != request.holder) {
                if waiter.is_upgrade || !self.fits(mutant, &held, waiter.mode) {
                    return false;
                }
                held.push(waiter.mode);
            }
        }
        self.fits(mutant, &held, request.mode)
    }

    fn fits(&self, mutant: Option<Mutant>, held: &[Mode], asked: Mode) -> bool {
        let held = held.iter().copied();
        match (mutant, asked) {
            (Some(Mutant::ModeIgnored), _) => held.count() == 0,
            (Some(Mutant::WriterBesideReaders), Mode::Exclusive) => {
                held.clone().all(|mode| matches!(mode, Mode::Shared | Mode::Upgradable))
            }
            (Some(Mutant::ReaderBesideAWriter), Mode::Shared) => {
                rules::fits(held.filter(|mode| *mode != Mode::Exclusive), asked)
            }
            (Some(Mutant::TwoUpgraders), Mode::Upgradable) => rules::fits(held, Mode::Shared),
            (Some(Mutant::PermitsBesideOtherModes), Mode::Permits(_)) => {
                rules::fits(held.filter(|mode| matches!(mode, Mode::Permits(_))), asked)
            }
            (Some(Mutant::PermitsCountHolders), Mode::Permits(permits)) => {
                rules::fits(held.map(|mode| weighing(1, mode)), weighing(1, Mode::Permits(permits)))
            }
            (Some(Mutant::HoldersLimitCounts), Mode::Permits(permits)) => {
                let limits = held.clone().filter_map(|mode| match mode {
                    Mode::Permits(permits) => Some(permits.of()),
                    _ => None,
                });
                let limit = limits.max().unwrap_or(0).max(permits.of());
                rules::fits(held, limited(permits, limit))
            }
            (Some(Mutant::ExpiredPermitReturnsTwice), Mode::Permits(permits)) => {
                rules::fits(held, limited(permits, permits.of() + self.surplus))
            }
            _ => rules::fits(held, asked),
        }
    }

    /// When a hold ends if nothing renews it.
    pub(super) fn end_of(&self, mutant: Option<Mutant>, hold: &Hold) -> Instant {
        let last = || self.holds.iter().map(|hold| hold.expires).max();
        match (mutant, hold.mode) {
            (Some(Mutant::ReadersExpireTogether), Mode::Shared | Mode::Upgradable)
            | (Some(Mutant::PermitsExpireTogether), Mode::Permits(_)) => last().unwrap_or(hold.expires),
            (Some(Mutant::PermitsNeverExpire), Mode::Permits(_)) => hold.expires + Duration::from_secs(60 * 60),
            _ => hold.expires,
        }
    }
}

/// Whether the request goes before all queue entries.
fn passes_the_queue(mutant: Option<Mutant>, request: &Request) -> bool {
    match (mutant, request.mode) {
        (Some(Mutant::NewcomersComeFirst), _)
        | (Some(Mutant::ReadersPassWriters), Mode::Shared)
        | (Some(Mutant::SmallRequestsPassLargeOnes), Mode::Permits(_)) => true,
        _ => request.replaces.is_some() && mutant != Some(Mutant::UpgradeQueuesBehindWriters),
    }
}

/// The same permits, as if there were so many of them.
fn limited(permits: Permits, limit: u32) -> Mode {
    Mode::Permits(Permits::new(permits.take(), limit).unwrap_or(permits))
}

/// The same mode, with this weight where it has one.
fn weighing(weight: u32, mode: Mode) -> Mode {
    match mode {
        Mode::Permits(permits) => Mode::Permits(Permits::new(weight, permits.of()).unwrap_or(permits)),
        other => other,
    }
}
