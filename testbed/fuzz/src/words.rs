//! Texts as bytes: those of ASCII stand for themselves, each other byte for a word.

/// The text of these bytes.
///
/// # Examples
/// ```
/// assert_eq!(testbed_fuzz::decode(&["redis://", "@"], b"\x80a\x81b"), "redis://a@b");
/// ```
pub fn decode(words: &[&str], bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match usize::from(*byte).checked_sub(0x80) {
            Some(word) if !words.is_empty() => text += words[word % words.len()],
            _ => text.push(char::from(byte & 0x7f)),
        }
    }
    text
}

/// Bytes whose [text](decode) this is, without the characters that are neither ASCII nor in a word.
///
/// # Panics
/// If there are more than 128 words.
pub fn encode(words: &[&str], text: &str) -> Vec<u8> {
    assert!(words.len() <= 0x80, "a byte stands for at most 128 words");
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = (0_u8..)
            .zip(words)
            .find(|(_, word)| !word.is_empty() && rest.starts_with(**word));
        let taken = match word {
            Some((number, word)) => {
                bytes.push(0x80 + number);
                word.len()
            }
            None => {
                bytes.extend(u8::try_from(first).ok().filter(u8::is_ascii));
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_back() {
        let words = ["redis://", "\u{e9}", "@"];
        for text in ["", "redis://a@b", "\u{e9}redis:/\0\n"] {
            assert_eq!(decode(&words, &encode(&words, text)), text);
        }
        assert_eq!(decode(&words, &encode(&words, "a\u{20ac}b")), "ab");
        assert_eq!(decode(&[], &encode(&[], "a")), "a");
        assert_eq!(decode(&words, &[0x83]), "redis://", "they are repeated");
    }
}
