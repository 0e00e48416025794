//! The conformance suite of polylock's distributed locks
