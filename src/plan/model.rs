//! The shape of a model, as far as memory and time depend on it.

use std::path::Path;

use super::header;
use super::request::PlanRequest;
use crate::context_params::KvType;
use crate::error::{LoadError, PlanError};
use crate::ffi;
use crate::gguf;

/// A cell of a cache with sliding windows is a whole number of these.
const SLIDING_STEP: u64 = 256;

/// Bits that a weight takes where only the weights' size is known: those of the quantisations that most people use.
const BITS_PER_WEIGHT: f64 = 4.8;

/// Nodes of a layer of a common architecture: seven matrices, two norms of two nodes each, two turns of positions, two writes to the cache,
/// attention, an activation and two sums.
const NODES_PER_LAYER: u32 = 19;

/// Nodes behind the layers: choosing the rows that are asked for, the last norm, and the output.
pub(crate) const NODES_OF_OUTPUT: u32 = 5;

/// Attention of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    /// Heads of queries.
    pub heads: u32,
    /// Values of a head of K.
    pub d_k: u32,
    /// Values of a head of V.
    pub d_v: u32,
    /// Values of a cell's row of K, over all heads.
    pub k_values: u32,
    /// Values of a cell's row of V; 0 where V is a part of K's row.
    pub v_values: u32,
}

impl LayerShape {
    /// Bytes of a cell.
    fn row_bytes(&self, (k, v): (KvType, KvType)) -> u64 {
        k.bytes_of(self.k_values.into()) + v.bytes_of(self.v_values.into())
    }
}

/// The shape of a model, as far as memory and time depend on it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelShape {
    /// What to call it.
    pub name: String,
    /// Layers whose cache grows with the context.
    pub layers: Vec<LayerShape>,
    /// Layers that see the newest `sliding_window` tokens only; they stay on the device.
    pub sliding: Vec<LayerShape>,
    /// Tokens that they see.
    pub sliding_window: u32,
    /// State of each sequence that does not grow, in bytes.
    pub state_bytes: u64,
    /// Weights on the device when every layer is there, in bytes.
    pub weight_bytes: u64,
    /// Of them those that are read for one token.
    pub step_weight_bytes: u64,
    /// Operations of a token, attention left out.
    pub token_flops: f64,
    /// Nodes of a step's graph that compute.
    pub nodes: u32,
    /// Tokens of the vocabulary.
    pub n_vocab: u32,
    /// Values of a token's hidden state.
    pub n_embd: u32,
    /// Values inside a feed-forward block.
    pub n_ff: u32,
    /// Tokens of context that it was trained for; 0: unknown.
    pub trained_ctx: u32,
    /// What could not be read exactly.
    pub notes: Vec<String>,
}

impl ModelShape {
    /// A model of equal layers, with `heads` query and `kv_heads` KV heads of `head_dim` values; `weight_bytes` of weights.
    #[must_use]
    pub fn uniform(
        name: &str,
        layers: u32,
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        weight_bytes: u64,
    ) -> Self {
        let layer = LayerShape {
            heads,
            d_k: head_dim,
            d_v: head_dim,
            k_values: kv_heads.saturating_mul(head_dim),
            v_values: kv_heads.saturating_mul(head_dim),
        };
        let n_embd = heads.saturating_mul(head_dim);
        Self {
            name: name.to_owned(),
            layers: vec![layer; layers as usize],
            sliding: Vec::new(),
            sliding_window: 0,
            state_bytes: 0,
            weight_bytes,
            step_weight_bytes: weight_bytes,
            token_flops: 2.0 * 8.0 * weight_bytes as f64 / BITS_PER_WEIGHT,
            nodes: layers.saturating_mul(NODES_PER_LAYER) + NODES_OF_OUTPUT,
            n_vocab: 150_000,
            n_embd,
            n_ff: n_embd.saturating_mul(3),
            trained_ctx: 0,
            notes: Vec::new(),
        }
    }

    /// The shape of the model in a GGUF file, of which only the header is read.
    ///
    /// # Errors
    /// When there is no such file, or it is not one that llama.cpp could load.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let parts = gguf::inspect(path)?;
        header::shape(&parts).map_err(|reason| LoadError::NotGguf {
            path: path.to_owned(),
            reason,
        })
    }

    /// Bytes of a cell over all layers that grow.
    #[must_use]
    pub fn cell_bytes(&self, k: KvType, v: KvType) -> u64 {
        self.layers
            .iter()
            .map(|layer| layer.row_bytes((k, v)))
            .sum()
    }

    /// What lies on the device beside the windows and does not grow, in bytes.
    pub(crate) fn beside_bytes(&self, request: &PlanRequest, n_ctx: u32) -> u64 {
        let wanted = u64::from(self.sliding_window) + u64::from(request.ubatch);
        let cells = u64::from(n_ctx).min(wanted.next_multiple_of(SLIDING_STEP));
        let rows = self.sliding.iter();
        let rows: u64 = rows.map(|layer| layer.row_bytes(request.types)).sum();
        (rows * cells + self.state_bytes) * u64::from(request.streams)
    }

    /// Working memory of a batch, as estimated: the mask, and either the logits or what a layer's feed-forward block holds at a time.
    pub(crate) fn compute_bytes(&self, ubatch: u32, n_ctx: u32) -> u64 {
        let [vocab, embd, ff] = [self.n_vocab, self.n_embd, self.n_ff].map(u64::from);
        let logits = vocab + embd;
        let layer = 3 * ff + 3 * embd;
        u64::from(ubatch) * (4 * logits.max(layer) + 2 * u64::from(n_ctx))
    }

    /// The layers as C takes them.
    pub(crate) fn layers_to_ffi(
        &self,
        request: &PlanRequest,
    ) -> Result<Vec<ffi::rkv_plan_layer>, PlanError> {
        self.check()?;
        let (k, v) = request.types;
        let (tail_k, tail_v) = request.tail_types.unwrap_or(request.types);
        let layers = self.layers.iter().map(|layer| {
            for (kv_type, values) in [
                (k, layer.k_values),
                (tail_k, layer.k_values),
                (v, layer.v_values),
                (tail_v, layer.v_values),
            ] {
                if !values.is_multiple_of(block_len(kv_type)) {
                    return Err(PlanError::CacheType { values, kv_type });
                }
            }
            Ok(ffi::rkv_plan_layer {
                type_k: k.to_ffi(),
                type_v: v.to_ffi(),
                tail_type_k: tail_k.to_ffi(),
                tail_type_v: tail_v.to_ffi(),
                k_values: layer.k_values,
                v_values: layer.v_values,
                n_head: layer.heads,
                d_k: layer.d_k,
                d_v: layer.d_v,
            })
        });
        layers.collect()
    }

    fn check(&self) -> Result<(), PlanError> {
        let wrong = |what: &str, advice: &str| {
            Err(PlanError::Shape {
                what: what.to_owned(),
                advice: advice.to_owned(),
            })
        };
        if self.layers.is_empty() {
            return wrong(
                "no layer whose cache grows with the context",
                "run it without a window; its memory does not depend on the context",
            );
        }
        let empty = |layer: &LayerShape| layer.heads == 0 || layer.k_values == 0 || layer.d_k == 0;
        if self.layers.iter().any(empty) {
            return wrong(
                "a layer without heads or without values in them",
                "give heads, kv-heads and head-dim of 1 or more",
            );
        }
        if self.weight_bytes == 0 {
            return wrong("no weights", "give weights, such as weights=9GiB");
        }
        Ok(())
    }
}

/// Values of a block of a type.
fn block_len(kv_type: KvType) -> u32 {
    // SAFETY: only looks up a table that has an entry for every type.
    u32::try_from(unsafe { ffi::ggml_blck_size(kv_type.to_ffi()) }).unwrap_or(1)
}
