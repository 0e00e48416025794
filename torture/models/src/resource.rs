//! The resource behind the lock: a value that every holder reads, changes and writes back.

use super::mutant::Mutant;

/// A value with a fence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The largest token seen.
    fence: u64,
    /// The number of writes.
    version: u8,
    /// Whether a write undid another one.
    pub lost: bool,
}

impl Resource {
    /// Registers the token, before anything is read: the value, or `None` to a stale holder.
    pub fn read(&mut self, token: u64, mutant: Option<Mutant>) -> Option<u8> {
        match mutant {
            Some(Mutant::NoFence | Mutant::FenceOnWritesOnly) => Some(self.version),
            _ => self.enter(token).then_some(self.version),
        }
    }

    /// Writes what was made of the value as it was read, unless the holder is stale.
    pub fn write(&mut self, token: u64, read: u8, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::NoFence) || self.enter(token) {
            self.lost |= self.version != read;
            self.version += 1;
        }
    }

    fn enter(&mut self, token: u64) -> bool {
        let admitted = token >= self.fence;
        self.fence = self.fence.max(token);
        admitted
    }
}
