//! Test runs without servers.

use std::io::Write;

use crate::{Error, Server};

/// Whether tests have to do without servers: `POLYLOCK_OFFLINE` is set, and not to `0`.
pub fn is_offline() -> bool {
    std::env::var_os("POLYLOCK_OFFLINE").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether this test has to do without servers; then it is skipped. [`macro@crate::test`] asks this.
///
/// So that the test does not look passed, the line `SKIP name-of-the-test: reason` goes to standard error itself, past the
/// test harness's capture; `cargo xtask test` counts these lines. Call it on the test's own thread, whose name is the
/// test's.
pub fn skip_offline() -> bool {
    let offline = is_offline();
    if offline {
        skip("POLYLOCK_OFFLINE is set");
    }
    offline
}

/// What was found, or `None` where this test has to do without it and may: it is then skipped as by [`skip_offline`].
///
/// # Panics
/// For every other reason why it is not there.
pub fn skip_left_out<T>(found: Result<T, Error>) -> Option<T> {
    match or_why_left_out(found) {
        Ok(found) => Some(found),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

/// Whether one of these servers ran before the test, which may not break it then, nor count on its options: then this test
/// is skipped as by [`skip_offline`].
pub fn skip_external<'a>(servers: impl IntoIterator<Item = &'a Server>) -> bool {
    let is_external = servers.into_iter().any(Server::is_external);
    if is_external {
        skip("it needs a server of its own, and is given one that already runs");
    }
    is_external
}

fn or_why_left_out<T>(found: Result<T, Error>) -> Result<T, String> {
    match found {
        Ok(found) => Ok(found),
        Err(error @ Error::LeftOut { .. }) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Says that this test is skipped, as [`skip_offline`] does. The test has to return then.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("SKIP {}: {reason}\n", thread.name().unwrap_or("(unnamed)"));
    // In one piece, as other tests write too. If nobody reads it, nobody counts it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLES: &[&str] = &["POLYLOCK_PYTHON"];

    #[test]
    fn what_may_be_left_out_is_skipped() {
        let (server, variables) = ("redis-py", VARIABLES);
        assert_eq!(or_why_left_out(Ok(42)), Ok(42));
        let why = or_why_left_out::<()>(Err(Error::LeftOut { server, variables })).unwrap_err();
        assert!(why.contains("redis-py"), "{why}");
    }

    #[test]
    #[should_panic = "redis-py"]
    fn what_may_not_be_left_out_fails() {
        let (server, variables) = ("redis-py", VARIABLES);
        let _ = or_why_left_out::<()>(Err(Error::Missing { server, variables }));
    }
}
