//! Saving and restoring what a context holds.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::backend::build_stamp;
use crate::context::Context;
use crate::error::{Failure, FailureKind, SequenceError, StateError};
use crate::model::with_log;
use crate::state_format::{HEADER_BYTES, Header, Origin, StateKind, upstream_name};
use crate::state_transfer::{NewFile, Port, Transfer, check_written, read_piece, write_piece};
use crate::status::check;
use crate::{ffi, host, logging};

/// llama.cpp's mark for all sequences.
const ALL: i32 = -1;

/// Files are hashed in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// A saved state in memory: complete, undamaged, and marked with the model and the cache layout that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBlob {
    header: Header,
    bytes: Vec<u8>,
}

impl StateBlob {
    /// Takes the bytes of [`as_bytes`](Self::as_bytes) back.
    ///
    /// # Errors
    /// When they are something else, cut short, or damaged.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, StateError> {
        let header = Header::decode(&bytes)?;
        header.check_len(bytes.len() as u64)?;
        if xxh3_64(&bytes[HEADER_BYTES..]) != header.payload_hash {
            return Err(StateError::Corrupt);
        }
        Ok(Self { header, bytes })
    }

    /// The bytes, header and all; also what the file functions write.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What it is a state of.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        self.header.origin.kind
    }
}

impl Context<'_> {
    /// Saves every sequence.
    ///
    /// # Errors
    /// When the model keeps nothing, or the memory does not suffice.
    pub fn save_state(&mut self) -> Result<StateBlob, StateError> {
        self.save(ALL)
    }

    /// Saves one sequence, which can be restored as any other.
    ///
    /// # Errors
    /// As [`save_state`](Self::save_state), and when there is no such sequence.
    pub fn save_sequence(&mut self, seq: i32) -> Result<StateBlob, StateError> {
        self.needs_sequence(seq)?;
        self.save(seq)
    }

    /// Replaces every sequence by what was saved.
    ///
    /// # Errors
    /// When the state belongs to another model or another cache layout, or does not fit. The context then holds what it
    /// held before.
    pub fn restore_state(&mut self, state: &StateBlob) -> Result<(), StateError> {
        let mut payload = &state.bytes[HEADER_BYTES..];
        self.restore(ALL, &state.header, &mut |piece| payload.read_exact(piece))
    }

    /// Replaces one sequence by what was saved of it or of another one. Restoring an empty sequence empties it.
    ///
    /// # Errors
    /// As [`restore_state`](Self::restore_state), and when there is no such sequence.
    pub fn restore_sequence(&mut self, state: &StateBlob, seq: i32) -> Result<(), StateError> {
        self.needs_sequence(seq)?;
        let mut payload = &state.bytes[HEADER_BYTES..];
        self.restore(seq, &state.header, &mut |piece| payload.read_exact(piece))
    }

    /// Saves every sequence to a file, without a copy in memory. The file appears only when it is complete.
    ///
    /// # Errors
    /// As [`save_state`](Self::save_state), and when the file cannot be written.
    pub fn save_state_file(&mut self, path: impl AsRef<Path>) -> Result<(), StateError> {
        self.save_file(ALL, path.as_ref())
    }

    /// Saves one sequence to a file.
    ///
    /// # Errors
    /// As [`save_state_file`](Self::save_state_file), and when there is no such sequence.
    pub fn save_sequence_file(
        &mut self,
        path: impl AsRef<Path>,
        seq: i32,
    ) -> Result<(), StateError> {
        self.needs_sequence(seq)?;
        self.save_file(seq, path.as_ref())
    }

    /// [`restore_state`](Self::restore_state) from a file, without a copy in memory. The file is checked as a whole before
    /// anything is replaced.
    ///
    /// # Errors
    /// As [`restore_state`](Self::restore_state), and when the file cannot be read or is damaged.
    pub fn restore_state_file(&mut self, path: impl AsRef<Path>) -> Result<(), StateError> {
        self.restore_file(ALL, path.as_ref())
    }

    /// [`restore_sequence`](Self::restore_sequence) from a file.
    ///
    /// # Errors
    /// As [`restore_state_file`](Self::restore_state_file), and when there is no such sequence.
    pub fn restore_sequence_file(
        &mut self,
        path: impl AsRef<Path>,
        seq: i32,
    ) -> Result<(), StateError> {
        self.needs_sequence(seq)?;
        self.restore_file(seq, path.as_ref())
    }

    fn save(&mut self, seq: i32) -> Result<StateBlob, StateError> {
        self.needs_state()?;
        let mut bytes = Vec::new();
        let payload_len = self.payload_len(seq)?;
        if host::available_bytes().is_some_and(|available| payload_len > available)
            || bytes
                .try_reserve_exact(payload_len as usize + HEADER_BYTES)
                .is_err()
        {
            let text = format!(
                "the state's {payload_len} bytes do not fit into memory; save it to a file"
            );
            return Err(Failure::new(FailureKind::NoMemory, text).into());
        }
        bytes.resize(HEADER_BYTES, 0);
        let written = self.write(seq, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        let payload = &bytes[HEADER_BYTES..];
        check_written(payload_len, written)?;
        let header = Header {
            origin: self.origin(seq),
            payload_len: payload.len() as u64,
            payload_hash: xxh3_64(payload),
        };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(StateBlob { header, bytes })
    }

    fn save_file(&mut self, seq: i32, path: &Path) -> Result<(), StateError> {
        self.needs_state()?;
        let announced = self.payload_len(seq)?;
        let failed = |source| StateError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = NewFile::beside(path).map_err(failed)?;
        file.file.write_all(&[0; HEADER_BYTES]).map_err(failed)?;
        let mut hash = Xxh3::new();
        let payload_len = {
            let out = &mut file.file;
            self.write(seq, &mut |piece| {
                hash.update(piece);
                out.write_all(piece)
            })
            .map_err(|err| err.with_path(path))?
        };
        check_written(announced, payload_len)?;
        let header = Header {
            origin: self.origin(seq),
            payload_len,
            payload_hash: hash.digest(),
        };
        file.finish(&header.encode(), path).map_err(failed)
    }

    fn restore_file(&mut self, seq: i32, path: &Path) -> Result<(), StateError> {
        self.needs_state()?;
        let failed = |source| StateError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let mut start = Vec::new();
        (&mut file)
            .take(HEADER_BYTES as u64)
            .read_to_end(&mut start)
            .map_err(failed)?;
        let header = Header::decode(&start)?;
        header.check_len(len)?;
        header.check_origin(&self.origin(seq))?;

        let mut hash = Xxh3::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece).map_err(failed)? {
                0 => break,
                n => hash.update(&piece[..n]),
            }
        }
        if hash.digest() != header.payload_hash {
            return Err(StateError::Corrupt);
        }
        file.seek(SeekFrom::Start(HEADER_BYTES as u64))
            .map_err(failed)?;
        let mut payload = BufReader::with_capacity(PIECE_BYTES, file);
        self.restore(seq, &header, &mut |piece| payload.read_exact(piece))
            .map_err(|err| err.with_path(path))
    }

    /// Replaces `seq`, keeping a copy of what it held until the new content is in.
    fn restore(
        &mut self,
        seq: i32,
        header: &Header,
        payload: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<(), StateError> {
        self.needs_state()?;
        header.check_origin(&self.origin(seq))?;
        let before = if self.holds(seq) {
            Some(self.save(seq)?)
        } else {
            None
        };

        let cause = match self.replace(seq, header.payload_len, payload) {
            Ok(()) => {
                self.outputs.invalidate();
                return Ok(());
            }
            Err(cause) => cause,
        };
        let put_back = match &before {
            None => self.empty(seq),
            Some(before) => {
                let mut payload = &before.bytes[HEADER_BYTES..];
                self.replace(seq, before.header.payload_len, &mut |piece| {
                    payload.read_exact(piece)
                })
            }
        };
        match put_back {
            Ok(()) if !self.poisoned => Err(cause),
            _ => Err(StateError::Lost {
                cause: Box::new(cause),
            }),
        }
    }

    fn replace(
        &mut self,
        seq: i32,
        payload_len: u64,
        payload: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<(), StateError> {
        if self.poisoned {
            return Err(StateError::Poisoned);
        }
        // llama.cpp leaves a sequence as it is when the saved one was empty.
        self.empty(seq)?;
        let mut port = Port {
            transfer: Transfer::Read(payload),
            error: None,
        };
        let context = self.raw.as_mut_ptr();
        let mut n_bytes = 0;
        let (status, log) = logging::capture(|| {
            // SAFETY: the context lives and is ours alone; `port` outlives the call and is used by nothing else.
            check(unsafe {
                ffi::rkv_state_read(
                    context,
                    seq,
                    Some(read_piece),
                    (&raw mut port).cast(),
                    &raw mut n_bytes,
                )
            })
        });
        if let Some(source) = port.error {
            return Err(StateError::Io {
                path: PathBuf::new(),
                source,
            });
        }
        match self.noted(status) {
            Err(failure) => Err(StateError::DoesNotFit(with_log(failure, log))),
            Ok(()) if n_bytes != payload_len => {
                let text = format!("llama.cpp read {n_bytes} of {payload_len} bytes");
                Err(StateError::DoesNotFit(Failure::new(
                    FailureKind::Refused,
                    text,
                )))
            }
            Ok(()) => Ok(()),
        }
    }

    fn write(
        &mut self,
        seq: i32,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, StateError> {
        let mut port = Port {
            transfer: Transfer::Write(sink),
            error: None,
        };
        let mut n_bytes = 0;
        // SAFETY: the context lives and is ours alone; `port` outlives the call and is used by nothing else.
        let status = check(unsafe {
            let user_data = (&raw mut port).cast();
            ffi::rkv_state_write(
                self.raw.as_mut_ptr(),
                seq,
                Some(write_piece),
                user_data,
                &raw mut n_bytes,
            )
        });
        if let Some(source) = port.error {
            return Err(StateError::Io {
                path: PathBuf::new(),
                source,
            });
        }
        self.noted(status)?;
        Ok(n_bytes)
    }

    /// What [`write`](Self::write) will write.
    fn payload_len(&mut self, seq: i32) -> Result<u64, StateError> {
        // SAFETY: the context lives and is ours alone.
        let settled = check(unsafe { ffi::rkv_memory_update(self.raw.as_mut_ptr()) });
        self.noted(settled)?;
        // SAFETY: as above; llama.cpp counts without copying, and catches what its counting throws.
        let counted = unsafe {
            match seq {
                ALL => ffi::llama_state_get_size(self.raw.as_mut_ptr()),
                seq => ffi::llama_state_seq_get_size(self.raw.as_mut_ptr(), seq),
            }
        };
        Ok((counted as u64).saturating_sub(self.upstream_header_len(seq)))
    }

    /// What llama.cpp counts before a state, where we have our header: the architecture, or a mark and the sequence.
    fn upstream_header_len(&self, seq: i32) -> u64 {
        match seq {
            ALL => {
                let architecture = self.model.metadata("general.architecture");
                4 + architecture.map_or(0, |name| name.len() as u64)
            }
            _ => 8,
        }
    }

    fn empty(&mut self, seq: i32) -> Result<(), StateError> {
        let mut memory = self.memory();
        match seq {
            ALL => memory.clear()?,
            seq => memory.remove_all(seq)?,
        }
        Ok(())
    }

    fn holds(&self, seq: i32) -> bool {
        match seq {
            ALL => (0..self.limits.n_seq_max as i32).any(|seq| self.positions_of(seq).is_some()),
            seq => self.positions_of(seq).is_some(),
        }
    }

    fn origin(&self, seq: i32) -> Origin {
        Origin {
            kind: if seq == ALL {
                StateKind::Context
            } else {
                StateKind::Sequence
            },
            model: self.model.fingerprint(),
            type_k: self.limits.type_k.to_ffi(),
            type_v: self.limits.type_v.to_ffi(),
            v_transposed: !self.memory.flash_attn,
            n_stream: self.memory.n_stream,
            memory_kind: self.memory.kind,
            local_layers: self.memory.local_digest,
            upstream: upstream_name(&build_stamp()),
        }
    }

    fn needs_state(&self) -> Result<(), StateError> {
        if self.poisoned {
            Err(StateError::Poisoned)
        } else if self.memory.kind == ffi::RKV_MEMORY_NONE {
            Err(SequenceError::NoMemory.into())
        } else {
            Ok(())
        }
    }

    fn noted(&mut self, status: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &status {
            self.poisoned |= failure.kind() == FailureKind::Assertion;
        }
        status
    }
}
