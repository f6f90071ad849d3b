//! A digest that tells damage from what was kept.

/// FNV-1a of 64 bits (Fowler, Noll and Vo), over words of 32 bits. Each step is a bijection of what was before, so that
/// one changed word always changes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub fn word(&mut self, word: u32) {
        self.0 = (self.0 ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
    }

    pub fn floats(&mut self, values: &[f32]) {
        values.iter().for_each(|value| self.word(value.to_bits()));
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

/// A digest of floats, bit by bit.
pub fn of_floats(values: &[f32]) -> u64 {
    let mut digest = Digest::new();
    digest.floats(values);
    digest.value()
}

/// A digest of a text, as 16 hexadecimal digits.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut digest = Digest::new();
    text.bytes().for_each(|byte| digest.word(byte.into()));
    format!("{:016x}", digest.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_and_another_order_are_seen() {
        let one = of_floats(&[1.0, 2.0]);
        assert_ne!(one, of_floats(&[2.0, 1.0]));
        assert_ne!(one, of_floats(&[1.0, f32::from_bits(2f32.to_bits() ^ 1)]));
        assert_ne!(of_floats(&[0.0]), of_floats(&[-0.0]));
        assert_eq!(of_text("a"), "af63dc4c8601ec8c");
    }
}
