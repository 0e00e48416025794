//! The effect of each event.

use super::{Holder, Kept, Next, Stamp, State, ZookeeperMinimumModel};
use crate::mutant::Mutant;

impl ZookeeperMinimumModel {
    pub(super) fn release(&self, state: &mut State) -> Option<()> {
        let Holder::Told(told) = state.holder else {
            return None;
        };
        let end = told + self.minimum;
        state.own = false;
        state.holder = Holder::Released(end);
        if end <= state.now {
            state.kept = None;
            return Some(());
        }
        state.promised = end;
        match self.has(Mutant::ReleasesBeforeKeeping) {
            true => state.holder = Holder::HalfReleased(end),
            false => state.write_kept(end - state.now),
        }
        Some(())
    }

    /// As `lock-zookeeper/src/acquire/minimum.rs`.
    pub(super) fn look(&self, state: &mut State, is_old: bool) -> Option<()> {
        let Next::Waits(mut waiter) = state.next else {
            return None;
        };
        let Some(current) = state.kept else {
            let was_told = state.promised > 0 && !matches!(state.holder, Holder::Admitted | Holder::Keeps);
            state.was_early |= was_told && state.now < state.promised;
            state.next = Next::Holds;
            return Some(());
        };
        state.old_reads += u8::from(is_old);
        let kept = if is_old { state.before? } else { current };
        let written = kept.written;
        let since = match waiter.seen {
            Some((zxid, since)) if zxid == written.zxid => since,
            _ => state.now,
        };
        waiter.seen = Some((written.zxid, since));
        let here = state.now - waiter.came;
        let by_clock = waiter.created.at - written.at;
        let passed = if waiter.created.zxid < written.zxid {
            Some(state.now - since)
        } else if self.has(Mutant::ComparesTwoClocks) || waiter.created.epoch == written.epoch && by_clock >= 0 {
            Some(by_clock + here)
        } else {
            None
        };
        state.next = match passed {
            Some(passed) if passed >= kept.time => Next::Asks(waiter, written.zxid, true),
            Some(passed) => {
                state.sleeps |= state.now - since.max(waiter.came) >= kept.time;
                waiter.wakes = Some(state.now + kept.time - passed);
                Next::Waits(waiter)
            }
            None if self.has(Mutant::KeptWithoutAClock) => {
                waiter.wakes = None;
                Next::Waits(waiter)
            }
            None => Next::Asks(waiter, written.zxid, false),
        };
        Some(())
    }
}

impl State {
    /// The leader's time of a new transaction.
    pub(super) fn stamp(&mut self) -> Stamp {
        self.zxid += 1;
        Stamp {
            zxid: self.zxid,
            epoch: self.epoch,
            at: self.now + self.ahead,
        }
    }

    pub(super) fn write_kept(&mut self, time: i8) {
        let written = self.stamp();
        self.before = self.kept;
        self.kept = Some(Kept { written, time });
    }
}
