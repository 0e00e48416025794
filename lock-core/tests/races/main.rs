//! Core's own keeper, queue and guard, under every order of events that shuttle thinks of: each test is one race, run
//! in thousands of schedules, and again with a mutant that it has to find.
//!
//! `cargo xtask test` runs them; by hand, in a target directory of their own:
//! `RUSTFLAGS="--cfg shuttle" cargo test --profile races --package lock-core --test races --target-dir target/races`.
#![cfg(shuttle)]

mod drop_against_shutdown;
mod explore;
mod join_against_release;
mod limits_together;
mod pass_against_cancel;
mod pass_against_loss;
mod permits_cancel_against_grant;
mod re_entry_against_release;
mod release_against_cancel;
mod renewal_against_release;
#[path = "../all/scripted/mod.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod scripted;
mod server;
mod take_over_against_release;
mod timeout_against_grant;
mod try_against_release;
mod upgrade_against_cancel;
