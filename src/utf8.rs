//! Text from pieces that end anywhere.

/// Turns bytes that arrive in pieces into text: a character that is cut by the end of a piece comes out whole with the
/// next one. Nothing is lost: bytes that are not UTF-8 come out as U+FFFD, one for each run that began like a character.
///
/// ```
/// let mut text = rolling_kv::Utf8Stream::new();
/// assert_eq!(text.push(b"caf\xC3"), "caf");
/// assert_eq!(text.push(b"\xA9!"), "\u{e9}!");
/// assert_eq!(text.finish(), "");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Utf8Stream {
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// An empty stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece and answers the text that is complete now.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> String {
        self.pending.extend_from_slice(piece);
        let kept = unfinished_len(&self.pending);
        let rest = self.pending.split_off(self.pending.len() - kept);
        let complete = std::mem::replace(&mut self.pending, rest);
        match String::from_utf8(complete) {
            Ok(text) => text,
            Err(err) => String::from_utf8_lossy(err.as_bytes()).into_owned(),
        }
    }

    /// Ends the stream: what began like a character and was not finished comes out as U+FFFD.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Whether a character has begun and is not finished.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Length of the end of `bytes` that can still become a character.
fn unfinished_len(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    // The last byte that can begin a character decides.
    let Some(start) = tail.iter().rposition(|byte| !(0x80..0xC0).contains(byte)) else {
        return 0;
    };
    match std::str::from_utf8(&tail[start..]) {
        Err(err) if err.error_len().is_none() && err.valid_up_to() == 0 => tail.len() - start,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn streamed(pieces: &[Vec<u8>]) -> String {
        let mut stream = Utf8Stream::new();
        let mut text: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        text.push_str(&stream.finish());
        text
    }

    proptest! {
        #[test]
        fn any_cut_of_any_bytes_gives_what_the_whole_gives(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..6), 0..20)) {
            let whole = pieces.concat();
            prop_assert_eq!(streamed(&pieces), String::from_utf8_lossy(&whole));
        }

        #[test]
        fn text_comes_out_as_it_went_in(text in "\\PC*", cuts in proptest::collection::vec(0usize..200, 0..20)) {
            let mut bytes = text.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, rest) = bytes.split_at(cut.min(bytes.len()));
                pieces.push(piece.to_vec());
                bytes = rest;
            }
            pieces.push(bytes.to_vec());
            prop_assert_eq!(streamed(&pieces), text);
        }

        #[test]
        fn nothing_waits_after_a_whole_character(character in any::<char>()) {
            let mut stream = Utf8Stream::new();
            prop_assert_eq!(stream.push(character.to_string().as_bytes()), character.to_string());
            prop_assert!(!stream.is_waiting());
        }
    }

    #[test]
    fn a_character_comes_out_with_its_last_byte() {
        for character in ["\u{e9}", "\u{6b63}", "\u{1f600}"] {
            let mut stream = Utf8Stream::new();
            let (last, first) = character.as_bytes().split_last().unwrap();
            for byte in first {
                assert_eq!(stream.push(&[*byte]), "");
            }
            assert_eq!(stream.push(&[*last]), character);
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_character_says_so() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"ab\xE6\xAD"), "ab");
        assert!(stream.is_waiting());
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn bytes_that_never_become_a_character_do_not_wait() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"\xFF\x80a"), "\u{fffd}\u{fffd}a");
        assert!(!stream.is_waiting());
    }
}
