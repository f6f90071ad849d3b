//! Local layers: the one choice here that changes what a model says.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{LocalLayersError, RollingKvError};
use crate::ffi;
use crate::model::Model;

/// Layers whose attention sees only the first and the newest tokens of a sequence. They keep the rows of these alone, in device
/// memory: they have no tail and move nothing over a link.
///
/// **This changes results**, unlike everything else in [`RollingKv`](crate::RollingKv). Whether a model bears it is a matter of the
/// model and of the layer; `rolling-kv gate budget` proposes layers, tests them and writes what it accepted to a file, which
/// [`from_file`](Self::from_file) reads.
///
/// Each sequence needs a buffer of its own: a context with several sequences must not be
/// [`kv_unified`](crate::ContextParams::kv_unified). Its tokens cannot be moved to other positions, its state is taken only by a context
/// with the same local layers and the same length of a batch, and of a sequence's end at most a batch can be removed
/// ([`SequenceError::PartialRemoval`](crate::SequenceError::PartialRemoval)).
///
/// ```
/// use rolling_kv::{LocalLayers, RollingKv};
/// let spill = RollingKv::vram_budget_mib(4096).local_layers(LocalLayers::new(3..=9, 1024));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalLayers {
    layers: Vec<u32>,
    cells: u32,
    first: u32,
    #[serde(default)]
    n_layer: u32,
    #[serde(default)]
    fingerprint: String,
}

/// What `rolling-kv gate budget` writes, as far as it is read here.
#[derive(Deserialize)]
struct Accepted {
    accepted: Option<LocalLayers>,
}

impl LocalLayers {
    /// These layers, each seeing the first 4 tokens and the newest `cells`, the token itself among them.
    #[must_use]
    pub fn new(layers: impl IntoIterator<Item = u32>, cells: u32) -> Self {
        Self {
            layers: layers.into_iter().collect(),
            cells,
            first: ffi::RKV_LOCAL_FIRST_DEFAULT,
            n_layer: 0,
            fingerprint: String::new(),
        }
    }

    /// Tokens at the beginning that they see.
    #[must_use]
    pub fn first(mut self, tokens: u32) -> Self {
        self.first = tokens;
        self
    }

    /// Only for this model; a context of another one is refused.
    #[must_use]
    pub fn for_model(mut self, model: &Model) -> Self {
        self.n_layer = model.n_layer();
        self.fingerprint = hex(&model.fingerprint());
        self
    }

    /// What `rolling-kv gate budget --json FILE` accepted.
    ///
    /// # Errors
    /// When the file cannot be read, is something else, or names no layers because none was accepted.
    pub fn from_file(path: &Path) -> Result<Self, LocalLayersError> {
        let text = std::fs::read_to_string(path).map_err(|source| LocalLayersError::File {
            path: path.into(),
            source,
        })?;
        let found: Accepted =
            serde_json::from_str(&text).map_err(|source| LocalLayersError::Format {
                path: path.into(),
                source,
            })?;
        found
            .accepted
            .filter(|found| !found.layers.is_empty())
            .ok_or_else(|| LocalLayersError::NoneAccepted {
                path: PathBuf::from(path),
            })
    }

    /// The layers.
    #[must_use]
    pub fn layers(&self) -> &[u32] {
        &self.layers
    }

    /// Newest tokens that they see.
    #[must_use]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    pub(crate) fn check(&self, model: &Model) -> Result<(), RollingKvError> {
        let n_layer = model.n_layer();
        if self.cells == 0 {
            return Err(RollingKvError::NoLocalCells);
        }
        if let Some(&layer) = self.layers.iter().find(|layer| **layer >= n_layer) {
            return Err(RollingKvError::Layer { layer, n_layer });
        }
        if !self.fingerprint.is_empty() && self.fingerprint != hex(&model.fingerprint()) {
            return Err(RollingKvError::LocalLayersOfAnotherModel);
        }
        Ok(())
    }

    /// Puts the request into the C struct, which then points into `self`.
    pub(crate) fn put(&self, params: &mut ffi::rkv_params) {
        params.local_layers = self.layers.as_ptr();
        params.n_local_layers = self.layers.len();
        params.local_cells = self.cells;
        params.local_first = self.first;
        params.local_n_layer = self.n_layer;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
