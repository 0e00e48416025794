//! Models of the protocols, and what the torture program is made of.

pub mod models;
