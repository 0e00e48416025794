//! The keys of a lock.
//!
//! All keys of a name lie in one hash slot, so that one script may touch them, on a cluster too. No key of one name
//! is a key of another: for one prefix, name and purpose can be read back from every key.

use lock_core::LockName;
use lock_core::backend::HolderId;

/// The number of hash slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The keys of one lock, in one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    text: String,
    /// The offsets at which the other keys begin.
    starts: [usize; 4],
    /// How long a text stands before the purpose in each of the others.
    purpose_at: usize,
}

impl Keys {
    /// The lock's key is prefix and name as they are, unless that begins with `{`, or has a `}` but no hash tag: then
    /// no other key can be put into its slot, and it is escaped.
    ///
    /// | prefix and name | lock | fence and, likewise, queue, ends and terms |
    /// |---|---|---|
    /// | `a`, without `}` | `a` | `{a}:fence` |
    /// | `a{b}c`, tagged | `a{b}c` | `{b}:fence:a{b}c` |
    /// | all others: `a}b` | `{a%7Db}:lock` | `{a%7Db}:lock:fence` |
    pub(crate) fn new(prefix: &str, name: &LockName) -> Self {
        let name = name.as_str();
        let mut text = String::with_capacity(5 * (prefix.len() + name.len()) + 32);
        text.push_str(prefix);
        text.push_str(name);
        // A key of another purpose begins with a part of the lock's key, perhaps in braces. Behind the purpose, the whole of a tagged
        // lock's key follows this separator.
        let (before, [open, close], behind) = match (text.find('{'), hash_tag(&text)) {
            (Some(start @ 1..), Some(tag)) => (start..start + tag.len() + 2, ["", ""], Some(":")),
            (start, None) if start != Some(0) && !text.contains('}') => (0..text.len(), ["{", "}"], None),
            _ => {
                text = ["{", &escape(&text), "}:lock"].concat();
                (0..text.len(), ["", ""], None)
            }
        };
        let lock = text.len();
        let starts = [":fence", ":queue", ":ends", ":terms"].map(|purpose| {
            let start = text.len();
            text.push_str(open);
            text.extend_from_within(before.clone());
            text.extend([close, purpose]);
            if let Some(separator) = behind {
                text.push_str(separator);
                text.extend_from_within(..lock);
            }
            start
        });
        let purpose_at = open.len() + before.len() + close.len();
        Self {
            text,
            starts,
            purpose_at,
        }
    }

    /// In the order in which the scripts expect them.
    ///
    /// - The lock: who holds it. A plain string key, as for every client that locks with `SET key … NX PX ttl`.
    /// - The fence: its last token, and the tombstones of holder ids that ended while a request of theirs was in flight.
    /// - The queue: who waits for it.
    /// - The ends and the terms: until when and how each of those has it that share it.
    pub(crate) fn all(&self) -> [&str; 5] {
        let [fence, queue, ends, terms] = self.starts;
        let text = &self.text;
        [
            &text[..fence],
            &text[fence..queue],
            &text[queue..ends],
            &text[ends..terms],
            &text[terms..],
        ]
    }
}

impl Keys {
    /// The lock alone.
    pub(crate) fn lock(&self) -> [&str; 1] {
        [self.all()[0]]
    }

    /// Those that there are as long as the name is shared, each where a script expects it.
    pub(crate) fn of_shared(&self) -> [&str; 5] {
        let [lock, _fence, _queue, ends, terms] = self.all();
        [lock, lock, lock, ends, terms]
    }

    /// Lock and fence: as long as nobody has the name, a grant takes no other.
    pub(crate) fn of_grant(&self) -> [&str; 2] {
        let [lock, fence, ..] = self.all();
        [lock, fence]
    }

    /// Lock and queue: as long as nobody waits, the end of a hold takes no other.
    pub(crate) fn of_end(&self) -> [&str; 2] {
        let [lock, _fence, queue, ..] = self.all();
        [lock, queue]
    }

    /// Where the purpose stands in all but the lock, in bytes.
    pub(crate) fn purpose_at(&self) -> usize {
        self.purpose_at
    }

    /// The hash slot of all of them.
    pub(crate) fn slot(&self) -> u16 {
        slot(self.all()[0])
    }

    /// The channel in their hash slot that belongs to the inbox of this name.
    pub(crate) fn channel(&self, inbox: &str) -> String {
        let lock = self.all()[0];
        format!("{{{}}}:{inbox}", hash_tag(lock).unwrap_or(lock))
    }
}

/// The channel on which the server wakes a backend's waiters.
pub(crate) fn inbox(prefix: &str) -> String {
    format!("{prefix}inbox:{}", HolderId::random())
}

/// A key of the server itself and not of a lock: a key of a lock has no `}` without a hash tag. In a cluster, each master has
/// one of those with numbers.
pub(crate) fn mark(prefix: &str, number: u32) -> String {
    match number {
        0 => format!("{prefix}}}member"),
        number => format!("{prefix}}}member:{number}"),
    }
}

/// The name whose lock or queue this key is, if it is one. Where a name is shared, all its other keys go with its lock.
pub(crate) fn name_of(prefix: &str, key: &str) -> Option<LockName> {
    let is_its = |text: &str| {
        let name = LockName::new(text.strip_prefix(prefix)?).ok()?;
        let keys = Keys::new(prefix, &name);
        let [lock, _fence, queue, ..] = keys.all();
        (key == lock || key == queue).then_some(name)
    };
    if let Some(name) = is_its(key) {
        return Some(name);
    }
    // `{escaped}:lock` and `{escaped}:lock:queue`, `{plain}:queue`, or `{tag}:queue:plain`.
    let inner = key.strip_prefix('{')?;
    let escaped = inner.strip_suffix(":queue").unwrap_or(inner).strip_suffix("}:lock");
    let plain = || inner.strip_suffix("}:queue");
    let tagged = || inner.split_once("}:queue:").map(|(_tag, text)| text);
    escaped
        .and_then(|escaped| is_its(&unescape(escaped)))
        .or_else(|| plain().and_then(is_its))
        .or_else(|| tagged().and_then(is_its))
}

/// True if a text that begins with `begin` stands unchanged in all keys of its name, whatever follows.
pub(crate) fn has_plain_keys(begin: &str) -> bool {
    !begin.contains(['{', '}', '%'])
}

/// The pattern that matches this text alone. White space would end an ACL rule, so `?` stands for it.
pub(crate) fn as_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            '*' | '?' | '[' | ']' | '\\' => pattern.extend(['\\', c]),
            // Also a vertical tab, and the end of a text in C: rules of ACLs may have neither.
            c if c.is_ascii_whitespace() || matches!(c, '\u{b}' | '\0') => pattern.push('?'),
            c => pattern.push(c),
        }
    }
    pattern
}

/// The part of a key that alone decides on its slot, by the rule of Redis Cluster: what stands between the first `{`
/// and the next `}`, unless that is nothing.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The hash slot of a key, by the rule of Redis Cluster: CRC16 (XMODEM) of its tag, or else of the whole key.
pub(crate) fn slot(key: &str) -> u16 {
    let crc = hash_tag(key).unwrap_or(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % SLOTS
}

fn unescape(escaped: &str) -> String {
    escaped.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
}

fn escape(plain: &str) -> String {
    plain.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        Keys::new(prefix, &LockName::new(name).expect("a valid name"))
    }

    #[test]
    fn golden() {
        // These never change: a new version must exclude an old one.
        let golden = [
            (
                "polylock:",
                "orders/42",
                "polylock:orders/42",
                "{polylock:orders/42}:fence",
            ),
            ("polylock:", "a{b}c", "polylock:a{b}c", "{b}:fence:polylock:a{b}c"),
            ("polylock:", "a{b", "polylock:a{b", "{polylock:a{b}:fence"),
            (
                "polylock:",
                "a{}b",
                "{polylock:a%7B%7Db}:lock",
                "{polylock:a%7B%7Db}:lock:fence",
            ),
            (
                "polylock:",
                "100%}",
                "{polylock:100%25%7D}:lock",
                "{polylock:100%25%7D}:lock:fence",
            ),
            ("", "{a}:fence", "{%7Ba%7D:fence}:lock", "{%7Ba%7D:fence}:lock:fence"),
        ];
        for (prefix, name, lock, fence) in golden {
            let keys = keys(prefix, name);
            let (before, behind) = fence.rsplit_once(":fence").expect("a fence");
            let [queue, ends, terms] = ["queue", "ends", "terms"].map(|purpose| format!("{before}:{purpose}{behind}"));
            assert_eq!(keys.all(), [lock, fence, &queue, &ends, &terms], "{prefix:?} {name:?}");
        }
    }

    /// A script finds each key where it expects it, by its number.
    #[test]
    fn a_call_has_its_keys_in_the_order_of_the_scripts() {
        let keys = keys("p:", "a");
        let [lock, fence, queue] = ["p:a", "{p:a}:fence", "{p:a}:queue"];
        let [ends, terms] = ["{p:a}:ends", "{p:a}:terms"];
        assert_eq!(keys.all(), [lock, fence, queue, ends, terms]);
        assert_eq!(keys.lock(), [lock]);
        assert_eq!(keys.of_grant(), [lock, fence]);
        assert_eq!(keys.of_end(), [lock, queue]);
        // Fence and queue need not be there: the lock stands for them.
        assert_eq!(keys.of_shared(), [lock, lock, lock, ends, terms]);
    }

    /// These never change: other versions look for the same mark.
    #[test]
    fn golden_marks() {
        assert_eq!(mark("polylock:", 0), "polylock:}member");
        assert_eq!(mark("polylock:", 7), "polylock:}member:7");
    }

    /// Permissions of channels go by the prefix.
    #[test]
    fn each_inbox_is_another_one_under_the_prefix() {
        let [one, other] = [(); 2].map(|()| inbox("p:"));
        assert!(
            one.starts_with("p:inbox:") && other.starts_with("p:inbox:"),
            "{one} {other}"
        );
        assert_ne!(one, other);
    }

    #[test]
    fn the_slot_is_that_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("a{123456789}b"), 0x31C3);
        assert_ne!(slot("{}123456789"), 0x31C3);
    }

    /// Every text of up to five of the characters that matter, and texts that look like keys.
    fn hostile() -> Vec<String> {
        let mut names = vec![String::new()];
        let mut last = names.clone();
        for _ in 0..5 {
            last = last
                .iter()
                .flat_map(|name| ["{", "}", "%", "a"].map(|c| format!("{name}{c}")))
                .collect();
            names.extend(last.iter().cloned());
        }
        names.remove(0);
        for like in ["", "a", "{a}", "a{a}", "a}", "%7Ba", "{a", "a%7D"] {
            for suffix in [
                "}member",
                "}member:7",
                ":fence",
                ":queue",
                ":ends",
                ":terms",
                ":lock",
                ":lock:fence",
                ":lock:queue",
                ":fence:a",
                ":queue:a",
                ":fence:{a}",
            ] {
                names.extend([format!("{like}{suffix}"), format!("{{{like}}}{suffix}")]);
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// As the scripts make them.
    #[test]
    fn all_others_are_as_the_fence_and_the_queue_with_another_purpose() {
        for name in hostile() {
            let keys = keys("polylock:", &name);
            let at = keys.purpose_at();
            for one in [keys.all()[1], keys.all()[2]] {
                let (before, behind) = (&one[..at], &one[at + ":fence".len()..]);
                let made = [":fence", ":queue", ":ends", ":terms"].map(|purpose| format!("{before}{purpose}{behind}"));
                assert_eq!(keys.all()[1..], made, "{name:?}");
            }
        }
    }

    /// A list asks the server for keys by such a text.
    #[test]
    fn a_plain_text_stands_in_all_keys_whatever_follows() {
        for begin in ["p:", "a b", "*"] {
            assert!(has_plain_keys(begin), "{begin:?}");
            for rest in hostile() {
                let keys = keys("", &format!("{begin}{rest}"));
                assert!(keys.all().iter().all(|key| key.contains(begin)), "{begin:?} {rest:?}");
            }
        }
        // Escaped in some keys: those of `a}`, of `{a`, and of `%}`.
        for other in ["a}", "{a", "%"] {
            assert!(!has_plain_keys(other), "{other:?}");
        }
    }

    #[test]
    fn no_key_belongs_to_two_names_and_all_of_a_name_share_a_slot() {
        for prefix in ["", "a", "polylock:"] {
            let mut owner = HashMap::new();
            for name in hostile() {
                let keys = keys(prefix, &name);
                assert_eq!(slot(&keys.channel("a:inbox:1")), keys.slot(), "{name:?}");
                for key in [keys.all()[0], keys.all()[2]] {
                    let found = name_of(prefix, key);
                    assert_eq!(found.as_ref().map(LockName::as_str), Some(&*name), "{key:?}");
                }
                for key in [keys.all()[1], keys.all()[3], keys.all()[4]] {
                    assert_eq!(name_of(prefix, key), None, "{key:?}");
                }
                for key in keys.all() {
                    assert!(key != mark(prefix, 0) && key != mark(prefix, 7), "{name:?}");
                    assert_eq!(slot(key), keys.slot(), "{name:?}");
                    let other = owner.insert(key.to_owned(), name.clone());
                    assert_eq!(other, None, "{key:?} belongs to {name:?} too");
                }
            }
        }
    }
}
