//! `polylock` as its users run it: real processes on real servers.

#![cfg(target_os = "linux")]

mod bench;
mod children;
mod codes;
mod commands;
mod environment;
mod loss;
mod operators;
mod pages;
mod servers;
mod signals;
mod support;
mod terminal;
