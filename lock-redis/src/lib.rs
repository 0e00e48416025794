//! polylock's Redis backend
