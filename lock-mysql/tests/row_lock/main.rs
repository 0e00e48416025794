//! The row lock on a real MariaDB, watched over a second, independent connection of the raw driver.

mod common;
mod errors;
mod faults;
mod holds;
mod names;
mod tokens;
mod waiting;
