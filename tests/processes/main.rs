//! What becomes of the locks of a process that ends.

mod child;
mod ending;
