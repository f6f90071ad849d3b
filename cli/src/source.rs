//! What `-m` means to a gate: a file, or a tiny model that is made in memory.

use std::fmt;
use std::path::{Path, PathBuf};

use rolling_kv::{Backend, LoadError, Model, ModelParams};
use rolling_kv_tiny::Tiny;

use crate::models::{self, ModelPathError};

/// What stands before the name of a tiny model.
const TINY: &str = "tiny:";

/// Where a model comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Random weights in memory.
    Tiny(Tiny),
}

impl Source {
    /// What `-m MODEL` means: `tiny:NAME`, a path, or the name of a model that was fetched. A file that exists wins over a name.
    pub fn of(model: &Path) -> Result<Self, ModelPathError> {
        let name = model.to_str().and_then(|text| text.strip_prefix(TINY));
        match name {
            Some(name) if !model.exists() => {
                let tiny = Tiny::of_name(name).ok_or_else(|| ModelPathError::NoSuchTiny {
                    name: name.into(),
                    known: Tiny::ALL.map(|tiny| tiny.name).join(", "),
                })?;
                Ok(Self::Tiny(tiny))
            }
            _ => models::resolve(model).map(Self::File),
        }
    }

    /// Loads or makes the model.
    pub fn load(&self, backend: &Backend, params: &ModelParams) -> Result<Model, LoadError> {
        match self {
            Self::File(path) => Model::load(backend, path, params),
            Self::Tiny(tiny) => tiny.load(backend, params),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Tiny(tiny) => write!(f, "{TINY}{}", tiny.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_model_is_asked_for_by_name_and_shown_as_it_was_asked_for() {
        for tiny in Tiny::ALL {
            let asked = format!("tiny:{}", tiny.name);
            let found = Source::of(Path::new(&asked)).unwrap();
            assert!(matches!(found, Source::Tiny(_)), "{asked}");
            assert_eq!(found.to_string(), asked);
        }
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_all_of_them() {
        for name in ["", "Llama", "gpt"] {
            let error = Source::of(Path::new(&format!("tiny:{name}"))).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("llama, gemma2") && text.contains("next:"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_exists_wins_over_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, "").unwrap();
        let found = Source::of(&path).unwrap();
        assert!(matches!(&found, Source::File(file) if *file == path));
        assert_eq!(found.to_string(), path.display().to_string());
    }
}
