//! Real lock servers for polylock's tests
