//! Keeps hostile text from exhausting the stack inside llama.cpp.
//!
//! Many tokenizers split words with std::regex, which recurses once per character of a match: one long run without a
//! space, or of spaces, overruns an ordinary stack. Such a text is cut on a thread whose stack fits it.

use std::thread;

use crate::error::VocabError;

/// Longest text, in bytes, that is taken at once.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 20;

/// Longest run of the same kind of character, in bytes.
const MAX_RUN_BYTES: usize = 1 << 20;

/// A run up to this length fits the smallest stack that Rust gives a thread, 2 MiB, several times over.
const SMALL_RUN_BYTES: usize = 1 << 10;

/// Stack for each byte of a run: more than twice what was measured.
const STACK_BYTES_PER_BYTE: usize = 1 << 10;

/// Runs `work`, which cuts `text`, on a stack that suffices.
pub(crate) fn with_stack_for<T: Send>(
    text: &[u8],
    work: impl FnOnce() -> Result<T, VocabError> + Send,
) -> Result<T, VocabError> {
    let run = longest_run(text);
    if run <= SMALL_RUN_BYTES {
        return work();
    }
    let too_long = || VocabError::RunTooLong {
        bytes: run,
        max_bytes: MAX_RUN_BYTES,
    };
    if run > MAX_RUN_BYTES {
        return Err(too_long());
    }
    let stack_bytes = run * STACK_BYTES_PER_BYTE + (8 << 20);
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(stack_bytes)
            .spawn_scoped(scope, work);
        let worker = worker.map_err(|_| too_long())?;
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Length of the longest two neighbouring runs, one of spaces and one of other bytes: no pattern matches across more.
fn longest_run(text: &[u8]) -> usize {
    let (mut longest, mut before, mut current, mut kind) = (0, 0, 0, None);
    for byte in text {
        let space = byte.is_ascii_whitespace();
        if kind == Some(space) {
            current += 1;
        } else {
            (before, current, kind) = (current, 1, Some(space));
        }
        longest = longest.max(before + current);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_reaches_into_its_neighbour() {
        assert_eq!(longest_run(b""), 0);
        assert_eq!(longest_run(b"one two"), 4);
        assert_eq!(longest_run(b"a    bc d"), 6);
    }

    #[test]
    fn a_run_beyond_the_limit_is_refused() {
        let text = vec![b'x'; MAX_RUN_BYTES + 1];
        assert!(matches!(
            with_stack_for(&text, || Ok(())),
            Err(VocabError::RunTooLong { .. })
        ));
    }
}
