//! What becomes of the locks of a process that ends, or forks.

#[cfg(feature = "blocking")]
mod blocking;
mod child;
mod ending;
mod fork;
mod inherited;
mod inherited_changes;
mod workers;
