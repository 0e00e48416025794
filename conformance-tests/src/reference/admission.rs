//! Whose turn it is, as the mutants see it.

use lock_core::backend::{HolderId, Mode, Permits};
use lock_core::memory::Wanted;

use super::state::Name;
use crate::mutant::Mutant;

/// Whether the request is granted. A mutant decides by the rules too, but mistakes the state of the name.
pub(super) fn admits(mutant: Option<Mutant>, surplus: u32, name: &Name, wanted: &Wanted<HolderId>) -> bool {
    let Some(mutant) = mutant else {
        return name.admits(wanted);
    };
    if refuses(mutant, name, wanted) {
        return false;
    }
    let (mut name, mut wanted) = (name.clone(), *wanted);
    match (mutant, wanted.mode) {
        (Mutant::UpgradeBesideReaders, Mode::Exclusive) if wanted.replaces.is_some() => return true,
        (Mutant::NewcomersComeFirst, _)
        | (Mutant::ReadersPassWriters, Mode::Shared)
        | (Mutant::SmallRequestsPassLargeOnes, Mode::Permits(_)) => name.queue.clear(),
        (Mutant::ModeIgnored, _) => all_modes(&mut name, |_| Mode::Exclusive),
        (Mutant::WriterBesideReaders, Mode::Exclusive) => {
            name.holds
                .retain(|hold| !matches!(hold.mode, Mode::Shared | Mode::Upgradable));
        }
        (Mutant::ReaderBesideAWriter, Mode::Shared) => name.holds.retain(|hold| hold.mode != Mode::Exclusive),
        (Mutant::TwoUpgraders, Mode::Upgradable) => wanted.mode = Mode::Shared,
        (Mutant::PermitsBesideOtherModes, Mode::Permits(_)) => {
            name.holds.retain(|hold| matches!(hold.mode, Mode::Permits(_)));
        }
        (Mutant::PermitsCountHolders, Mode::Permits(_)) => {
            all_modes(&mut name, weighing_one);
            wanted.mode = weighing_one(wanted.mode);
        }
        (Mutant::HoldersLimitCounts, Mode::Permits(permits)) => {
            let limits = name.holds.iter().filter_map(|hold| match hold.mode {
                Mode::Permits(permits) => Some(permits.of()),
                _ => None,
            });
            wanted.mode = limited(permits, limits.max().unwrap_or(0).max(permits.of()));
        }
        (Mutant::ExpiredPermitReturnsTwice, Mode::Permits(permits)) => {
            wanted.mode = limited(permits, permits.of() + surplus);
        }
        _ => {}
    }
    name.admits(&wanted)
}

fn refuses(mutant: Mutant, name: &Name, wanted: &Wanted<HolderId>) -> bool {
    let is_queued = |mode| name.queue.iter().any(|entry| entry.wanted.mode == mode);
    let waits = name.queue.iter().any(|entry| entry.wanted.holder == wanted.holder);
    let is_reader = wanted.mode == Mode::Shared;
    match mutant {
        Mutant::ReadersTakeTurns => is_reader && waits && !name.holds.is_empty(),
        Mutant::ReadersHeedWritersBehind => is_reader && is_queued(Mode::Exclusive),
        Mutant::UpgradeQueuesBehindWriters => {
            let mut before = name
                .queue
                .iter()
                .take_while(|entry| entry.wanted.holder != wanted.holder);
            wanted.replaces.is_some() && before.any(|entry| entry.wanted.mode == Mode::Exclusive)
        }
        _ => false,
    }
}

fn all_modes(name: &mut Name, of: impl Fn(Mode) -> Mode) {
    name.holds.iter_mut().for_each(|hold| hold.mode = of(hold.mode));
    name.queue
        .iter_mut()
        .for_each(|entry| entry.wanted.mode = of(entry.wanted.mode));
}

/// The same permits, as if there were so many of them.
fn limited(permits: Permits, limit: u32) -> Mode {
    Mode::Permits(Permits::new(permits.take(), limit).unwrap_or(permits))
}

/// The same mode, with a weight of 1 where it has one.
fn weighing_one(mode: Mode) -> Mode {
    match mode {
        Mode::Permits(permits) => Mode::Permits(Permits::new(1, permits.of()).unwrap_or(permits)),
        other => other,
    }
}
