//! One acquire of a quorum as a state machine without I/O: events go in, commands come out, and the time is passed in.
//!
//! [`Acquire`] decides whom to ask, where to wait, which votes to give back, what the token is, and when the name is held. It sends
//! nothing and reads no clock. A *driver* carries out the [`Command`]s, hands the nodes' answers in as [`Event`]s, and keeps the
//! leases of the votes. There are two drivers: this crate's own, over real backends, and that of the simulator which proves the
//! protocol (`torture/models/src/quorum.rs`), over simulated nodes. So the proof runs the code that users run.
//!
//! The module is hidden from the documentation: it is public for the simulator alone, and promises nothing to users.

pub use self::acquire::Acquire;
pub use self::decisions::{Decisions, Sound};
pub use self::known::Known;
pub use self::messages::{
    Ask, Changed, Command, Event, Failure, News, Order, Outcome, Seen, Situation, Step, VoteId, Wanted,
};

mod acquire;
mod decisions;
mod known;
mod messages;
mod round;
