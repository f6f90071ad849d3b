//! Which weights a model has, in 16 bytes: the mark that keeps a saved state away from another model.
//!
//! Hashed are the architecture, its hyperparameters, the name, shape and type of every tensor, and a sample from the
//! middle of each tensor's data. The tokenizer, the chat template and where the weights lie do not count.

use std::fs::File;
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3;

use crate::gguf::{Header, read_at};

/// Bytes of each tensor that are hashed.
const SAMPLE_BYTES: u64 = 64;

/// A model's mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) [u8; 16]);

/// Gathers what identifies a model.
pub(crate) struct Collector {
    hash: Xxh3,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self { hash: Xxh3::new() }
    }

    /// A length goes before each field, so that two fields cannot be mistaken for two others.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.hash.update(&(bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    pub(crate) fn finish(&self) -> Fingerprint {
        Fingerprint(self.hash.digest128().to_le_bytes())
    }
}

/// The range of a tensor's data, in bytes, that is hashed.
pub(crate) fn sample_range(bytes: u64) -> std::ops::Range<u64> {
    let start = bytes.saturating_sub(SAMPLE_BYTES) / 2;
    start..bytes.min(start + SAMPLE_BYTES)
}

/// The mark of a model in files.
pub(crate) fn of_files(parts: &[(PathBuf, Header)]) -> std::io::Result<Fingerprint> {
    let mut collector = Collector::new();
    for (path, header) in parts {
        let mut file = File::open(path)?;
        collector.field(header.architecture.as_bytes());
        for (key, value) in &header.hyperparameters {
            collector.field(key.as_bytes());
            collector.field(value);
        }
        for tensor in &header.tensors {
            collector.field(tensor.name.as_bytes());
            collector.field(&tensor.kind.to_le_bytes());
            for dim in &tensor.dims {
                collector.field(&dim.to_le_bytes());
            }
            let range = sample_range(tensor.bytes);
            let len = (range.end - range.start) as usize;
            collector.field(&read_at(&mut file, tensor.start + range.start, len)?);
        }
    }
    Ok(collector.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let of = |fields: &[&str]| {
            let mut collector = Collector::new();
            fields
                .iter()
                .for_each(|field| collector.field(field.as_bytes()));
            collector.finish()
        };
        assert!(of(&["ab", "c"]) != of(&["a", "bc"]));
        assert!(of(&["ab", "c"]) == of(&["ab", "c"]));
    }

    #[test]
    fn the_sample_lies_in_the_middle() {
        assert_eq!(sample_range(10), 0..10);
        assert_eq!(sample_range(164), 50..114);
    }
}
