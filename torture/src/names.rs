//! The names of the locks of a run, and of the values of the command line.

use clap::ValueEnum;
use lock_core::LockName;

/// The name of a run's lock.
pub(crate) fn lock_name(lock: usize) -> String {
    format!("lock-{lock}")
}

pub(crate) fn lock_number(name: &LockName) -> usize {
    let number = name
        .as_str()
        .strip_prefix("lock-")
        .and_then(|number| number.parse().ok());
    number.expect("all names of a run are made by `lock_name`")
}

/// The name of a value on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.expect("no value is skipped").get_name().to_owned()
}
