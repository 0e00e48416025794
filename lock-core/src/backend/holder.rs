//! Holder ids.

use std::fmt;

/// 128 random bits that identify one acquisition. After its release or abandon, the id is never used again.
///
/// The server compares it before it renews or releases a hold. So [`Debug`](fmt::Debug) shows only its first digits;
/// [`Display`](fmt::Display) writes it whole, as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HolderId(u128);

impl HolderId {
    /// The number of hexadecimal digits in its text.
    pub const HEX_DIGITS: usize = 32;

    /// Draws a new id from the operating system's generator, so that a forked or cloned process never repeats one.
    ///
    /// # Panics
    /// Panics if the operating system returns no random numbers. On Linux this can happen only before its generator is seeded.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        Self(u128::from_ne_bytes(bytes))
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; Self::HEX_DIGITS];
        for (at, byte) in self.0.to_be_bytes().into_iter().enumerate() {
            text[2 * at] = DIGITS[usize::from(byte >> 4)];
            text[2 * at + 1] = DIGITS[usize::from(byte & 15)];
        }
        // Each request of a backend has it, and `{:032x}` takes half as long again.
        f.write_str(str::from_utf8(&text).expect("digits are ASCII"))
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({:06x}..)", self.0 >> 104)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_in_full_but_shown_in_part() {
        let holder = HolderId(0x00ff << 112 | 0x0123_4567_89ab_cdef);
        assert_eq!(holder.to_string(), "00ff0000000000000123456789abcdef");
        let any = HolderId::random();
        assert_eq!(any.to_string(), format!("{:032x}", any.0));
        assert_eq!(format!("{holder:?}"), "HolderId(00ff00..)");
        assert_ne!(HolderId::random(), HolderId::random());
    }
}
