//! The contract of polylock's distributed locks, their policy, and the memory backend
