//! Logits as they came: a file of little-endian floats of 32 bits, which any program reads.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::digest;

/// Writes a file and answers its digest. It is complete or absent: it is written under another name and renamed.
pub fn write(path: &Path, values: &[f32]) -> io::Result<u64> {
    let part = path.with_extension("f32.part");
    let mut file = BufWriter::new(File::create(&part)?);
    for value in values {
        file.write_all(&value.to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    fs::rename(&part, path)?;
    Ok(digest::of_floats(values))
}

/// What was written; `None` when it is not there, or not as it was written.
pub fn read(path: &Path, count: u64, digest: u64) -> Option<Vec<f32>> {
    let bytes = fs::read(path).ok()?;
    let (floats, rest) = bytes.as_chunks::<4>();
    let values: Vec<f32> = floats.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let whole = rest.is_empty() && values.len() as u64 == count;
    (whole && digest::of_floats(&values) == digest).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_damaged_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stock.f32");
        let values = [1.5f32, -0.0, f32::MIN_POSITIVE, 3.0e38];
        let digest = write(&path, &values).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no part left");
        let back = read(&path, 4, digest).unwrap();
        assert_eq!(back.map_bits(), values.to_vec().map_bits());
        assert_eq!(fs::read(&path).unwrap()[..4], 1.5f32.to_le_bytes());

        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..15], &whole[..12], &[&whole[..], &[0; 4]].concat()] {
            fs::write(&path, damaged).unwrap();
            assert!(read(&path, 4, digest).is_none(), "{} bytes", damaged.len());
        }
        let mut flipped = whole.clone();
        flipped[9] ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert!(read(&path, 4, digest).is_none());
        fs::remove_file(&path).unwrap();
        assert!(read(&path, 4, digest).is_none());
    }

    trait Bits {
        fn map_bits(&self) -> Vec<u32>;
    }

    impl Bits for Vec<f32> {
        fn map_bits(&self) -> Vec<u32> {
            self.iter().map(|value| value.to_bits()).collect()
        }
    }
}
