//! What runs amounted to.

use super::world::Time;

/// What a run amounted to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) grants: u64,
    pub(crate) readers_together: usize,
    pub(crate) lost: u64,
    pub(crate) given_up: u64,
    pub(crate) crashes: u64,
    pub(crate) hangs: u64,
    pub(crate) steps_back: u64,
    pub(crate) upgrades: u64,
    pub(crate) downgrades: u64,
    pub(crate) passes: u64,
    /// The longest for which a waiter ran and nobody had the name.
    pub(crate) idle: Time,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.grants += other.grants;
        self.readers_together = self.readers_together.max(other.readers_together);
        self.lost += other.lost;
        self.given_up += other.given_up;
        self.crashes += other.crashes;
        self.hangs += other.hangs;
        self.steps_back += other.steps_back;
        self.upgrades += other.upgrades;
        self.downgrades += other.downgrades;
        self.passes += other.passes;
        self.idle = self.idle.max(other.idle);
    }
}
