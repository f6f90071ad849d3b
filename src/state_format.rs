//! The container around llama.cpp's own state bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | mark, `RKVSTATE` |
//! | 4 | format version |
//! | 4 | kind: 0 everything, 1 one sequence |
//! | 16 | fingerprint of the model |
//! | 4, 4 | type of K, type of V |
//! | 4 | 1 when V is stored transposed |
//! | 4 | number of separate buffers |
//! | 4 | kind of memory |
//! | 4 | digest of the local layers; 0 without any |
//! | 40 | what saved it, `llama.cpp <commit>`, filled up with zeroes |
//! | 8 | length of the payload |
//! | 8 | XXH3 of the payload |
//! | 8 | XXH3 of all the above |
//!
//! Numbers are little-endian. The payload follows, and nothing after it.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::StateError;

pub(crate) const HEADER_BYTES: usize = 120;
const MARK: [u8; 8] = *b"RKVSTATE";
const FORMAT: u32 = 1;
const UPSTREAM_BYTES: usize = 40;

/// What a state is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// Every sequence of a context.
    Context,
    /// One sequence.
    Sequence,
}

impl StateKind {
    fn name(self) -> &'static str {
        match self {
            Self::Context => "a whole context",
            Self::Sequence => "one sequence",
        }
    }
}

/// What must agree before the payload is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) kind: StateKind,
    pub(crate) model: [u8; 16],
    pub(crate) type_k: u32,
    pub(crate) type_v: u32,
    pub(crate) v_transposed: bool,
    pub(crate) n_stream: u32,
    pub(crate) memory_kind: u32,
    pub(crate) local_layers: u32,
    pub(crate) upstream: [u8; UPSTREAM_BYTES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) origin: Origin,
    pub(crate) payload_len: u64,
    pub(crate) payload_hash: u64,
}

/// The name of the library, as the header keeps it.
pub(crate) fn upstream_name(stamp: &str) -> [u8; UPSTREAM_BYTES] {
    let commit = stamp.split(',').next().unwrap_or(stamp).trim().as_bytes();
    let mut name = [0; UPSTREAM_BYTES];
    let len = commit.len().min(UPSTREAM_BYTES);
    name[..len].copy_from_slice(&commit[..len]);
    name
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name)
        .trim_end_matches('\0')
        .to_owned()
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let origin = &self.origin;
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MARK);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(u32::from(origin.kind == StateKind::Sequence).to_le_bytes());
        bytes.extend(origin.model);
        bytes.extend(origin.type_k.to_le_bytes());
        bytes.extend(origin.type_v.to_le_bytes());
        bytes.extend(u32::from(origin.v_transposed).to_le_bytes());
        bytes.extend(origin.n_stream.to_le_bytes());
        bytes.extend(origin.memory_kind.to_le_bytes());
        bytes.extend(origin.local_layers.to_le_bytes());
        bytes.extend(origin.upstream);
        bytes.extend(self.payload_len.to_le_bytes());
        bytes.extend(self.payload_hash.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Reads the header at the beginning of `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() < MARK.len() || bytes[..MARK.len()] != MARK {
            let cut = !bytes.is_empty() && MARK.starts_with(bytes);
            return Err(if cut {
                too_short(bytes)
            } else {
                StateError::NotAState
            });
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(too_short(bytes));
        };
        let mut fields = Fields(&header[MARK.len()..]);
        let format = fields.u32();
        if format != FORMAT {
            return Err(StateError::OtherFormat {
                expected: FORMAT,
                found: format,
            });
        }
        let (checked, hash) = header.split_at(HEADER_BYTES - 8);
        if xxh3_64(checked).to_le_bytes() != hash {
            return Err(StateError::Corrupt);
        }
        let origin = Origin {
            kind: if fields.u32() == 0 {
                StateKind::Context
            } else {
                StateKind::Sequence
            },
            model: fields.bytes(),
            type_k: fields.u32(),
            type_v: fields.u32(),
            v_transposed: fields.u32() != 0,
            n_stream: fields.u32(),
            memory_kind: fields.u32(),
            local_layers: fields.u32(),
            upstream: fields.bytes(),
        };
        Ok(Self {
            origin,
            payload_len: fields.u64(),
            payload_hash: fields.u64(),
        })
    }

    /// Compares the number of bytes that there are with what the header promises.
    pub(crate) fn check_len(&self, has: u64) -> Result<(), StateError> {
        let needs = self.payload_len.saturating_add(HEADER_BYTES as u64);
        match has.checked_sub(needs) {
            None => Err(StateError::Truncated { needs, has }),
            Some(0) => Ok(()),
            Some(extra) => Err(StateError::TrailingBytes { extra }),
        }
    }

    /// Whether a context of origin `here` can read the payload.
    pub(crate) fn check_origin(&self, here: &Origin) -> Result<(), StateError> {
        let saved = &self.origin;
        if saved.kind != here.kind {
            return Err(StateError::OtherKind {
                expected: here.kind.name(),
                found: saved.kind.name(),
            });
        }
        if saved.model != here.model {
            return Err(StateError::OtherModel);
        }
        if saved.upstream != here.upstream {
            return Err(StateError::OtherUpstream {
                expected: shown(&here.upstream),
                found: shown(&saved.upstream),
            });
        }
        let layouts = [
            ("type_k", saved.type_k, here.type_k),
            ("type_v", saved.type_v, here.type_v),
            (
                "flash attention off",
                saved.v_transposed.into(),
                here.v_transposed.into(),
            ),
            (
                "number of separate sequences",
                saved.n_stream,
                here.n_stream,
            ),
            ("kind of memory", saved.memory_kind, here.memory_kind),
            (
                "digest of local layers",
                saved.local_layers,
                here.local_layers,
            ),
        ];
        match layouts.into_iter().find(|(_, saved, here)| saved != here) {
            None => Ok(()),
            Some((option, saved, here)) => {
                let show = |value: u32| {
                    if option.starts_with("type") {
                        type_name(value)
                    } else {
                        value.to_string()
                    }
                };
                Err(StateError::OtherLayout {
                    option,
                    saved: show(saved),
                    here: show(here),
                })
            }
        }
    }
}

fn too_short(bytes: &[u8]) -> StateError {
    StateError::Truncated {
        needs: HEADER_BYTES as u64,
        has: bytes.len() as u64,
    }
}

fn type_name(raw: u32) -> String {
    let known = crate::KvType::ALL
        .into_iter()
        .find(|kind| kind.to_ffi() == raw);
    known.map_or_else(|| format!("type {raw}"), |kind| kind.to_string())
}

/// Reads fixed fields off a slice that is known to hold them.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk::<N>()
            .map_or(([0; N], &[][..]), |(field, rest)| (*field, rest));
        self.0 = rest;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let origin = Origin {
            kind: StateKind::Sequence,
            model: *b"0123456789abcdef",
            type_k: 1,
            type_v: 8,
            v_transposed: true,
            n_stream: 3,
            memory_kind: 2,
            local_layers: 5,
            upstream: upstream_name("llama.cpp 0c1e57098, patches 1234"),
        };
        Header {
            origin,
            payload_len: 1 << 40,
            payload_hash: 0x0123_4567_89ab_cdef,
        }
    }

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        assert_eq!(Header::decode(&header().encode()).unwrap(), header());
    }

    #[test]
    fn every_flipped_byte_of_a_header_is_noticed() {
        let bytes = header().encode();
        for index in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[index] ^= 0x40;
            assert!(Header::decode(&damaged).is_err(), "byte {index}");
        }
    }

    #[test]
    fn every_shorter_header_is_noticed() {
        let bytes = header().encode();
        for len in 0..bytes.len() {
            assert!(Header::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn each_difference_of_origin_is_named() {
        let here = header().origin;
        let differing = |change: fn(&mut Origin)| {
            let mut other = here;
            change(&mut other);
            header().check_origin(&other).unwrap_err().to_string()
        };
        assert!(header().check_origin(&here).is_ok());
        assert!(differing(|origin| origin.model[0] ^= 1).contains("another model"));
        assert!(differing(|origin| origin.type_k = 0).contains("type_k = f16"));
        assert!(differing(|origin| origin.n_stream = 1).contains("separate sequences = 3"));
        assert!(differing(|origin| origin.local_layers = 0).contains("local layers = 5"));
        assert!(differing(|origin| origin.upstream[10] ^= 1).contains("llama.cpp 0c1e57098"));
        assert!(differing(|origin| origin.kind = StateKind::Context).contains("one sequence"));
    }

    #[test]
    fn a_length_that_overflows_is_truncation() {
        let mut header = header();
        header.payload_len = u64::MAX;
        assert!(matches!(
            header.check_len(1000),
            Err(StateError::Truncated { .. })
        ));
    }
}
