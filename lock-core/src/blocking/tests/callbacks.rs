//! Callbacks of lost locks.

use std::io;
use std::sync::mpsc::{Sender, channel};

use testbed_steady::blocking::next;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Sends each line of the log to a channel.
#[derive(Clone)]
struct Log(Sender<String>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nobody listens to what comes after the test.
        let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn a_callback_that_panics_is_logged_and_stops_no_other() {
    let (log, lines) = channel();
    // For all threads: polylock's own is one of them.
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::ERROR)
        .with_writer(Log(log));
    tracing::subscriber::set_global_default(subscriber.finish()).expect("no other test of this binary has one");
    let server = MemoryBackend::new();
    let guard = Locker::new(server.clone()).lock("a panicking one").acquire().unwrap();
    let (tell, told) = channel();
    guard
        .on_lost(|_| std::panic::resume_unwind(Box::new("as planned")))
        .unwrap();
    guard.on_lost(move |lost| tell.send(lost).unwrap()).unwrap();
    server.take_away("a panicking one").unwrap();
    assert_eq!(receives("the loss", &told).name().as_str(), "a panicking one");
    loop {
        let line = receives("the line of the log", &lines);
        if line.contains("a callback of a lost lock panicked") && line.contains("a panicking one") {
            return;
        }
    }
}

#[test]
fn a_callback_may_call_polylock_and_take_long() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let (guard, other) = (locks.lock("a").acquire().unwrap(), locks.lock("b").acquire().unwrap());
    let (tell, told) = channel();
    let waiting = locks.lock("b");
    guard
        .on_lost(move |_| {
            let token = waiting.with(|held| held.token());
            tell.send(token).unwrap();
        })
        .unwrap();
    server.take_away("a").unwrap();
    // While the callback waits for the other lock, calls go on.
    assert!(guard.release().unwrap_err().is_lost());
    let token = other.token();
    other.release().unwrap();
    assert!(receives("the token", &told).unwrap() > token);
}

#[test]
fn a_release_calls_nobody() {
    let locks = Locker::new(MemoryBackend::new());
    let guard = locks.lock("a").acquire().unwrap();
    let (tell, told) = channel();
    guard.on_lost(move |lost| tell.send(lost).unwrap()).unwrap();
    guard.release().unwrap();
    assert!(
        next("the end of the callback", &told).is_none(),
        "it is dropped with the hold"
    );
}
