//! The quorum backend over memory backends that fail, fall silent and answer late.

mod acquiring;
mod contention;
mod following;
mod holding;
mod members;
mod releasing;
mod sessions;
mod sick;
mod silent;
mod slow;
mod starting;
mod support;
mod tokens;
