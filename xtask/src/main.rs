//! polylock's build and test commands
fn main() {}
