//! Who asks.

use std::fmt;

/// A holder id: the client's letter and the number of its acquisition, such as `B2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u8);

/// A set of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ids(u64);

impl Id {
    /// The largest number of acquisitions of a client.
    pub const PER_CLIENT: u8 = 8;

    /// The `run`th of a client, counting from 0.
    pub fn new(client: usize, run: u8) -> Self {
        debug_assert!(client < 8 && run < Self::PER_CLIENT);
        let client = u8::try_from(client).expect("below 8");
        Self(client * Self::PER_CLIENT + run)
    }

    /// Whose it is.
    pub fn client(self) -> usize {
        usize::from(self.0 / Self::PER_CLIENT)
    }
}

impl Ids {
    /// Whether the id is in the set.
    pub fn contains(self, id: Id) -> bool {
        self.0 & (1 << id.0) != 0
    }

    /// Whether any id of this client is in the set.
    pub fn contains_any_of(self, client: usize) -> bool {
        let all = (1 << Id::PER_CLIENT) - 1;
        self.0 & (all << (client * usize::from(Id::PER_CLIENT))) != 0
    }

    /// Removes it.
    pub fn remove(&mut self, id: Id) {
        self.0 &= !(1 << id.0);
    }

    /// Adds it.
    pub fn insert(&mut self, id: Id) {
        self.0 |= 1 << id.0;
    }
}

/// The letter by which a client is called.
pub fn letter(client: usize) -> char {
    char::from(b"ABCDEFGH"[client])
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", letter(self.client()), self.0 % Self::PER_CLIENT + 1)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
