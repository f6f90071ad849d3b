use std::path::PathBuf;

/// Why a file names no local layers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalLayersError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is not what `rolling-kv gate budget --json` writes: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// The gate accepted none.
    #[error("{} names no layers: the gate accepted none; run it with more tokens, or do without local layers", path.display())]
    NoneAccepted {
        /// The file.
        path: PathBuf,
    },
}
