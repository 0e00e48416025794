//! The encoding of a lock's name as one component of a ZooKeeper path.

use std::fmt::Write;

use lock_core::LockName;

/// The characters that stand for themselves, besides letters and digits. All others are written as `%XX`, byte by byte:
/// `/` and control characters are illegal in a component, and so is much of Unicode.
const PLAIN: &[u8] = b"-_~:@=+,";

/// The component for a name: injective, since `%` is escaped too, and at most three times as long.
pub(crate) fn component(name: &LockName) -> String {
    let mut component = String::with_capacity(name.as_str().len());
    for (index, byte) in name.as_str().bytes().enumerate() {
        // `.` and `..` are illegal components.
        let plain = byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) || byte == b'.' && index > 0;
        if plain {
            component.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(component, "%{byte:02X}");
        }
    }
    component
}

/// The name whose component this is. `None` for what this crate does not write: another application's node, or the token offset.
pub(crate) fn name_of(found: &str) -> Option<LockName> {
    let mut bytes = Vec::with_capacity(found.len());
    let mut rest = found.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        if first == b'%' {
            let (digits, others) = rest.split_at_checked(2)?;
            rest = others;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        } else {
            bytes.push(first);
        }
    }
    let name = LockName::new(String::from_utf8(bytes).ok()?).ok()?;
    (component(&name) == found).then_some(name)
}

/// The directory of a lock.
pub(crate) fn directory(root: &str, name: &LockName) -> String {
    format!("{root}/{}", component(name))
}

/// The node of the token offset. No lock has this directory: a `%` in one is followed by two digits.
pub(crate) fn token_offset(root: &str) -> String {
    format!("{root}/%token-offset")
}

/// The node that heartbeats delete if they are writes. It never exists, and no lock has this directory.
pub(crate) fn heartbeat(root: &str) -> String {
    format!("{root}/%heartbeat")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn encode(name: &str) -> String {
        component(&LockName::new(name).unwrap())
    }

    /// Changing one of these lets old and new clients hold the same lock at once.
    #[test]
    fn golden() {
        for (name, component) in [
            ("orders", "orders"),
            ("Orders", "Orders"),
            ("orders/42", "orders%2F42"),
            (".", "%2E"),
            ("..", "%2E."),
            ("a.b", "a.b"),
            ("a b", "a%20b"),
            ("100%", "100%25"),
            ("%2F", "%252F"),
            ("{a}:b@c=d+e,f~g", "%7Ba%7D:b@c=d+e,f~g"),
            ("a\0b\n", "a%00b%0A"),
            ("schön", "sch%C3%B6n"),
            ("zookeeper", "zookeeper"),
        ] {
            assert_eq!(encode(name), component, "{name:?}");
            assert_eq!(name_of(component).as_ref().map(LockName::as_str), Some(name));
        }
    }

    #[test]
    fn what_no_name_is_written_as_is_no_name() {
        for other in [
            "",
            "%token-offset",
            "%heartbeat",
            "%",
            "%2",
            "%2f",
            "%61",
            "%+1",
            "%FF",
            "a b",
            "sch\u{f6}n",
            ".",
        ] {
            assert_eq!(name_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_longest_name_fits() {
        assert_eq!(
            encode(&"\u{1}".repeat(LockName::MAX_BYTES)).len(),
            3 * LockName::MAX_BYTES
        );
    }

    #[test]
    fn near_equal_names_differ() {
        let names = [
            "a", "A", "a ", " a", "a/", "/a", "a%2F", "a\0", "a.", ".a", "á", "a\u{301}", "%", "%25",
        ];
        let components: HashSet<_> = names.iter().map(|name| encode(name)).collect();
        assert_eq!(components.len(), names.len());
    }

    #[test]
    fn a_directory_stands_under_the_root() {
        let name = LockName::new("a").unwrap();
        assert_eq!(directory("/locks", &name), "/locks/a");
        assert_eq!(token_offset("/locks"), "/locks/%token-offset");
        assert_eq!(heartbeat("/locks"), "/locks/%heartbeat");
    }
}
