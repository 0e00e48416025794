//! The row lock on a real MariaDB, watched over a second, independent connection of the raw driver.

mod errors;
mod faults;
mod holds;
mod names;
mod outage;
mod refused;
mod runtimes;
mod slow;
mod support;
mod tokens;
mod waiting;
