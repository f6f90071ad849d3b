//! A look at a model file before llama.cpp reads it: is it GGUF, is it whole, and which weights are in it?
//!
//! llama.cpp finds most damage too, but late, with the reason only in its log. Here each finding is a typed error.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::LoadError;
use crate::ffi;

/// Longest text and array that is believed; a longer one means that the bytes are something else.
const MAX_ITEMS: u64 = 1 << 28;

/// A tensor as the header describes it.
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) kind: u32,
    /// First byte in the file.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// What the header of one file says.
pub(crate) struct Header {
    pub(crate) architecture: String,
    /// Entries that describe the computation, `<architecture>.*`, with their values' raw bytes.
    pub(crate) hyperparameters: Vec<(String, Vec<u8>)>,
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) split_count: u64,
}

/// Why the bytes are not a header, before the path is known.
type Reason = String;

/// Reads the headers of the model at `path`, of each part if it is split, and checks that no file is cut short.
pub(crate) fn inspect(path: &Path) -> Result<Vec<(PathBuf, Header)>, LoadError> {
    let first = inspect_one(path)?;
    let count = first.split_count;
    let mut parts = vec![(path.to_owned(), first)];
    if count > 1 {
        for index in 1..count {
            let part = split_path(path, index, count).ok_or_else(|| LoadError::NotGguf {
                path: path.to_owned(),
                reason: format!("it is one of {count} parts, so its name must end in -00001-of-{count:05}.gguf and name the first"),
            })?;
            let header = inspect_one(&part)?;
            parts.push((part, header));
        }
    }
    Ok(parts)
}

/// Path of part `index` (from 0), given the path of the first part.
fn split_path(first: &Path, index: u64, count: u64) -> Option<PathBuf> {
    let name = first.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-00001-of-{count:05}.gguf"))?;
    Some(first.with_file_name(format!("{stem}-{:05}-of-{count:05}.gguf", index + 1)))
}

fn inspect_one(path: &Path) -> Result<Header, LoadError> {
    let unreadable = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => LoadError::NotFound {
            path: path.to_owned(),
        },
        _ => LoadError::NotReadable {
            path: path.to_owned(),
            source,
        },
    };
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if meta.is_dir() {
        return Err(LoadError::IsDirectory {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Bytes {
        from: BufReader::new(file),
        left: meta.len(),
    };
    let (header, data_start, alignment) =
        header(&mut bytes, meta.len()).map_err(|reason| LoadError::NotGguf {
            path: path.to_owned(),
            reason,
        })?;
    locate(header, data_start, alignment, path, meta.len())
}

/// Turns offsets into positions in the file and compares them with its length.
fn locate(
    mut header: Header,
    data_start: u64,
    alignment: u64,
    path: &Path,
    has: u64,
) -> Result<Header, LoadError> {
    let mut needs = 0;
    for tensor in &mut header.tensors {
        let end = data_start
            .checked_add(tensor.start)
            .and_then(|start| start.checked_add(tensor.bytes));
        let (Some(end), 0) = (end, tensor.start % alignment) else {
            let reason = format!("tensor {:?} lies at an impossible offset", tensor.name);
            return Err(LoadError::NotGguf {
                path: path.to_owned(),
                reason,
            });
        };
        tensor.start += data_start;
        needs = needs.max(end);
    }
    if needs > has {
        return Err(LoadError::Truncated {
            path: path.to_owned(),
            needs,
            has,
        });
    }
    Ok(header)
}

fn header<R: Read + Seek>(
    bytes: &mut Bytes<R>,
    file_len: u64,
) -> Result<(Header, u64, u64), Reason> {
    if bytes.array::<4>()? != *b"GGUF" {
        return Err("it does not begin with GGUF".into());
    }
    let version = u32::from_le_bytes(bytes.array()?);
    if version.swap_bytes() < 100 && version > 0xFFFF {
        return Err("it was written for a big-endian machine".into());
    }
    if !(2..=3).contains(&version) {
        return Err(format!(
            "its version is {version}, and only 2 and 3 are known"
        ));
    }
    let n_tensors = bytes.count("tensors")?;
    let n_entries = bytes.count("metadata entries")?;

    let mut entries = Vec::new();
    for _ in 0..n_entries {
        let key = bytes.text()?;
        let value = bytes.value(&key)?;
        entries.push((key, value));
    }
    let mut tensors = Vec::new();
    for _ in 0..n_tensors {
        tensors.push(bytes.tensor()?);
    }

    let number = |key: &str| {
        let (_, value) = entries.iter().find(|(name, _)| name == key)?;
        let mut wide = [0; 8];
        let len = value.raw.len().min(8);
        wide[..len].copy_from_slice(&value.raw[..len]);
        Some(u64::from_le_bytes(wide))
    };
    let alignment = number("general.alignment").unwrap_or(32);
    if !alignment.is_power_of_two() {
        return Err(format!(
            "its alignment is {alignment}, which is not a power of two"
        ));
    }
    let architecture = entries
        .iter()
        .find(|(name, _)| name == "general.architecture");
    let architecture =
        architecture.map(|(_, value)| String::from_utf8_lossy(&value.raw).into_owned());
    let architecture = architecture.ok_or("it does not say which architecture it has")?;
    let split_count = number("split.count").unwrap_or(1);

    let read = file_len - bytes.left;
    let data_start = read
        .checked_next_multiple_of(alignment)
        .ok_or("its header does not end")?;
    let own = format!("{architecture}.");
    let hyperparameters = entries
        .into_iter()
        .filter(|(key, _)| key.starts_with(&own))
        .map(|(key, value)| (key, value.raw))
        .collect();
    Ok((
        Header {
            architecture,
            hyperparameters,
            tensors,
            split_count,
        },
        data_start,
        alignment,
    ))
}

/// A metadata value's raw bytes; empty for an array of texts, which never describes the computation.
struct Value {
    raw: Vec<u8>,
}

struct Bytes<R> {
    from: BufReader<R>,
    left: u64,
}

impl<R: Read + Seek> Bytes<R> {
    fn take(&mut self, len: u64) -> Result<Vec<u8>, Reason> {
        self.spend(len)?;
        let mut bytes =
            vec![0; usize::try_from(len).map_err(|_| "it names a length that no memory holds")?];
        self.from
            .read_exact(&mut bytes)
            .map_err(|err| format!("it cannot be read: {err}"))?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        self.spend(N as u64)?;
        let mut bytes = [0; N];
        self.from
            .read_exact(&mut bytes)
            .map_err(|err| format!("it cannot be read: {err}"))?;
        Ok(bytes)
    }

    fn spend(&mut self, len: u64) -> Result<(), Reason> {
        self.left = self
            .left
            .checked_sub(len)
            .ok_or("it ends inside its header")?;
        Ok(())
    }

    fn skip(&mut self, len: u64) -> Result<(), Reason> {
        self.spend(len)?;
        let step = i64::try_from(len).map_err(|_| "it names a length that no file holds")?;
        self.from
            .seek_relative(step)
            .map_err(|err| format!("it cannot be read: {err}"))
    }

    fn u32(&mut self) -> Result<u32, Reason> {
        self.array().map(u32::from_le_bytes)
    }

    fn count(&mut self, what: &str) -> Result<u64, Reason> {
        let count = self.array().map(u64::from_le_bytes)?;
        if count > MAX_ITEMS || count > self.left {
            return Err(format!("it claims to hold {count} {what}"));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<String, Reason> {
        let len = self.count("bytes in one text")?;
        let bytes = self.take(len)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, key: &str) -> Result<Value, Reason> {
        const TEXT: u32 = 8;
        const ARRAY: u32 = 9;
        let kind = self.u32()?;
        let raw = match kind {
            TEXT => {
                let len = self.count("bytes in one text")?;
                self.take(len)?
            }
            ARRAY => {
                let of = self.u32()?;
                let count = self.count("values in one array")?;
                match of {
                    TEXT => {
                        for _ in 0..count {
                            let len = self.count("bytes in one text")?;
                            self.skip(len)?;
                        }
                        Vec::new()
                    }
                    _ => {
                        let size = scalar_bytes(of).ok_or_else(|| {
                            format!("{key:?} is an array of an unknown type ({of})")
                        })?;
                        self.take(count * size)?
                    }
                }
            }
            _ => {
                let size = scalar_bytes(kind)
                    .ok_or_else(|| format!("{key:?} has an unknown type ({kind})"))?;
                self.take(size)?
            }
        };
        Ok(Value { raw })
    }

    fn tensor(&mut self) -> Result<TensorInfo, Reason> {
        let name = self.text()?;
        let n_dims = self.u32()?;
        if n_dims == 0 || n_dims > ffi::GGML_MAX_DIMS {
            return Err(format!("tensor {name:?} has {n_dims} dimensions"));
        }
        let dims: Vec<u64> = (0..n_dims)
            .map(|_| self.array().map(u64::from_le_bytes))
            .collect::<Result<_, _>>()?;
        let kind = self.u32()?;
        let start = self.array().map(u64::from_le_bytes)?;
        let bytes = tensor_bytes(kind, &dims).ok_or_else(|| {
            format!("tensor {name:?} has the shape {dims:?} in type {kind}, which cannot be")
        })?;
        Ok(TensorInfo {
            name,
            dims,
            kind,
            start,
            bytes,
        })
    }
}

/// Bytes of one value; `None` for texts, arrays and unknown types.
fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Bytes of a tensor; `None` when the type is unknown, a row is not whole blocks, or the size overflows.
fn tensor_bytes(kind: u32, dims: &[u64]) -> Option<u64> {
    if kind >= ffi::GGML_TYPE_COUNT {
        return None;
    }
    // SAFETY: both only look up a table that has an entry for every type below GGML_TYPE_COUNT.
    let (block_len, block_bytes) =
        unsafe { (ffi::ggml_blck_size(kind), ffi::ggml_type_size(kind)) };
    let block_len = u64::try_from(block_len).ok().filter(|len| *len > 0)?;
    if block_bytes == 0
        || dims.first()? % block_len != 0
        || dims.iter().any(|dim| *dim > i64::MAX as u64)
    {
        return None;
    }
    let values = dims
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
    (values / block_len).checked_mul(block_bytes as u64)
}

/// Reads `len` bytes at `start`.
pub(crate) fn read_at(file: &mut File, start: u64, len: usize) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_after_the_first() {
        let first = Path::new("/m/big-00001-of-00003.gguf");
        assert_eq!(
            split_path(first, 2, 3),
            Some(PathBuf::from("/m/big-00003-of-00003.gguf"))
        );
        assert_eq!(split_path(first, 1, 4), None);
        assert_eq!(split_path(Path::new("/m/big.gguf"), 1, 2), None);
    }

    #[test]
    fn a_row_must_be_whole_blocks() {
        assert_eq!(
            tensor_bytes(ffi::GGML_TYPE_Q8_0, &[64, 2]),
            Some(2 * 2 * 34)
        );
        assert_eq!(tensor_bytes(ffi::GGML_TYPE_Q8_0, &[33]), None);
        assert_eq!(tensor_bytes(ffi::GGML_TYPE_COUNT, &[32]), None);
    }

    #[test]
    fn a_size_that_overflows_is_refused() {
        assert_eq!(tensor_bytes(ffi::GGML_TYPE_F32, &[1 << 40, 1 << 40]), None);
    }
}
