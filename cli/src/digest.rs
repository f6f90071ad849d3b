//! sha256 of a file or a stream.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// What was copied: its size in bytes and its sha256 in lower-case hexadecimal digits.
#[derive(Debug, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    pub sha256: String,
}

/// The sha256 of a text, in lower-case hexadecimal digits.
pub fn of_text(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes read at a time; large enough that the read calls do not show in the time.
const CHUNK_BYTES: usize = 1 << 18;

/// Copies `from` to `to` to the end and hashes what passes. `step` hears the size of each piece and stops the copy
/// by answering false, which is reported as [`io::ErrorKind::Interrupted`].
pub fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    mut step: impl FnMut(u64) -> bool,
) -> io::Result<Copied> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let n = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        hash.update(&chunk[..n]);
        to.write_all(&chunk[..n])?;
        bytes += n as u64;
        if !step(n as u64) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(Copied {
        bytes,
        sha256: hex(&hash.finalize()),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_hashes_and_counts_what_passes() {
        let mut to = Vec::new();
        let copied = copy(&mut b"abc".as_slice(), &mut to, |_| true).unwrap();
        assert_eq!(to, b"abc");
        assert_eq!(copied.bytes, 3);
        assert_eq!(
            copied.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn copy_stops_when_told_to() {
        let stopped = copy(&mut [0_u8; 9].as_slice(), &mut io::sink(), |_| false);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
