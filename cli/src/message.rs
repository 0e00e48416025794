//! The messages of polylock, on standard error alone: one line each, and never a password.
//!
//! A thread of its own writes them. Standard error may block, as a full pipe does: who renews locks or ends the command must not
//! wait for that.

use std::io::Write;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use self::queue::Queue;
use crate::terminal;

mod queue;

/// The time to wait until standard error has taken the messages.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// The same at the end, where a message that is not written is lost: a busy machine may not run the writer for seconds.
const WRITTEN_AT_END_WITHIN: Duration = Duration::from_secs(5);

static QUEUE: Queue = Queue::new();

/// Writes `polylock: MESSAGE`, as one line.
pub(crate) fn say(message: &str) {
    let line = redacted(message).split_whitespace().collect::<Vec<_>>().join(" ");
    raw(&format!("polylock: {line}\n"));
}

/// Writes text as it is.
pub(crate) fn raw(text: &str) {
    static HAS_WRITER: OnceLock<bool> = OnceLock::new();
    let writer = || thread::Builder::new().name("messages".to_owned()).spawn(write_all);
    match HAS_WRITER.get_or_init(|| writer().is_ok()) {
        true => QUEUE.push(text.to_owned()),
        false => write(text),
    }
}

/// Waits until all is written, for a second at most. The rest is written later.
pub(crate) fn flush() {
    let _ = QUEUE.flush(WRITTEN_WITHIN);
}

/// Waits until all is written, for five seconds at most. What is not written by then is lost with the process.
pub(crate) fn flush_at_end() {
    let _ = QUEUE.flush(WRITTEN_AT_END_WITHIN);
}

fn write_all() {
    terminal::use_from_background();
    loop {
        write(&QUEUE.next());
    }
}

fn write(text: &str) {
    // If standard error is closed, nobody wants it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The text with `..` for what stands before the `@` of a URL: a user and a password.
pub(crate) fn redacted(text: &str) -> String {
    // A password may have any byte that is no space. A quorum has several URLs in one word.
    redacted_to(text, |url| url.find(|c: char| c.is_whitespace() || c == '|'))
}

/// The same for a text with what somebody has typed: all up to the last `@` of its line, since nothing of it need be a proper URL.
pub(crate) fn redacted_lines(text: &str) -> String {
    redacted_to(text, |url| url.find('\n'))
}

/// `end`: the place where a URL ends at last, of the text behind its `://`.
fn redacted_to(text: &str, end: impl Fn(&str) -> Option<usize>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        shown += before;
        let end = end(after).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(at) => {
                shown += "..";
                &after[at..]
            }
            None => after,
        };
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::{redacted, redacted_lines};

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("'redis://me:secret@host/1' found", "'redis://..@host/1' found"),
            ("mysql://a:s@cret@h/d", "mysql://..@h/d"),
            ("quorum:redis://:a@x|redis://:b@y", "quorum:redis://..@x|redis://..@y"),
            ("redis://host and a@b", "redis://host and a@b"),
            ("no URL", "no URL"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn nor_those_that_are_not_encoded_in_what_was_typed() {
        let typed =
            "error: unexpected argument 'redis://me:se|cr et@h' found\n\nUsage: polylock run --url redis://host";
        let shown = "error: unexpected argument 'redis://..@h' found\n\nUsage: polylock run --url redis://host";
        assert_eq!(redacted_lines(typed), shown);
    }
}
