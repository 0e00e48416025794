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
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        shown += before;
        // A password may have any byte that is no space. A quorum has several URLs in one word.
        let word = after
            .find(|c: char| c.is_whitespace() || c == '|')
            .unwrap_or(after.len());
        rest = match after[..word].rfind('@') {
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
    use super::redacted;

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
}
