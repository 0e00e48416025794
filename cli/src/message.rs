//! The messages of polylock, on standard error alone: one line each, and never a password.

use std::io::Write;

/// Writes `polylock: MESSAGE`, as one line.
pub(crate) fn say(message: &str) {
    let line = redacted(message).split_whitespace().collect::<Vec<_>>().join(" ");
    raw(&format!("polylock: {line}\n"));
}

/// Writes text as it is. If standard error is closed, nobody wants it.
pub(crate) fn raw(text: &str) {
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
