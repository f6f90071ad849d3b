//! Which cards a library holds code for: NVIDIA's containers in the section `.nv_fatbin`, without NVIDIA's tools.

use std::collections::BTreeSet;

/// The section of a library that holds them.
pub const SECTION: &str = ".nv_fatbin";

/// How a container begins.
const MAGIC: u32 = 0xBA55_ED50;

/// The least that an entry's header has: kind, length of the header, length of the code, .., compute capability.
const HEADER_BYTES: usize = 32;

/// What one container holds: compute capabilities, of machine code and of code that the driver compiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// Machine code.
    pub machine: BTreeSet<u32>,
    /// PTX.
    pub portable: BTreeSet<u32>,
}

/// Reads every container; `None` where the bytes are none, or end too early.
pub fn read(bytes: &[u8]) -> Option<Vec<Container>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        // Containers are aligned; what lies between them is zero.
        if bytes[at] == 0 {
            at += 1;
            continue;
        }
        let header = bytes.get(at..at + 16)?;
        if number(header, 0, 4)? != u64::from(MAGIC) {
            return None;
        }
        let begin = at + usize::try_from(number(header, 6, 2)?).ok()?;
        let end = begin.checked_add(usize::try_from(number(header, 8, 8)?).ok()?)?;
        found.push(container(bytes.get(begin..end)?)?);
        at = end;
    }
    Some(found)
}

fn container(mut entries: &[u8]) -> Option<Container> {
    let mut found = Container::default();
    while !entries.is_empty() {
        let header = entries.get(..HEADER_BYTES)?;
        let arch = u32::try_from(number(header, 28, 4)?).ok()?;
        match number(header, 0, 2)? {
            1 => found.portable.insert(arch),
            2 => found.machine.insert(arch),
            _ => false,
        };
        let bytes = number(header, 4, 4)?.checked_add(number(header, 8, 8)?)?;
        entries = entries.get(usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)?..)?;
    }
    Some(found)
}

/// A little-endian number.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An entry as NVIDIA's linker writes it, with four bytes of code.
    fn entry(kind: u16, arch: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[0..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&64_u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&4_u64.to_le_bytes());
        bytes[28..32].copy_from_slice(&arch.to_le_bytes());
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    /// A container with such entries.
    pub fn made(entries: &[(u16, u32)]) -> Vec<u8> {
        let body: Vec<u8> = entries
            .iter()
            .flat_map(|&(kind, arch)| entry(kind, arch))
            .collect();
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn machine_code_and_portable_code_are_told_apart() {
        let mut bytes = made(&[(2, 86), (2, 90), (1, 90)]);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend([0; 8]);
        bytes.extend(made(&[(2, 86)]));
        let found = read(&bytes).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].machine, BTreeSet::from([86, 90]));
        assert_eq!(found[0].portable, BTreeSet::from([90]));
        assert_eq!(found[1].portable, BTreeSet::new());
    }

    #[test]
    fn what_is_cut_or_is_no_container_is_not_read() {
        let whole = made(&[(2, 86), (1, 86)]);
        assert!(read(&whole).is_some());
        for len in [1, 8, 15, 17, whole.len() - 1] {
            assert_eq!(read(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(read(b"not a container at all"), None);
        assert_eq!(read(&[]), Some(Vec::new()));
    }
}
