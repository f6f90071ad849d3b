//! A model's shape out of the header of its file.

use std::path::PathBuf;

use super::model::{LayerShape, ModelShape, NODES_OF_OUTPUT};
use crate::gguf::{Header, TensorInfo};

/// Nodes of a layer that have no weights: two turns of positions, two writes to the cache, attention, an activation and two sums.
const NODES_WITHOUT_WEIGHTS: u32 = 8;

/// How often a layer sees everything, of architectures whose layers otherwise see the newest tokens, where the file does not say it;
/// as llama.cpp has it.
const FULL_EVERY: [(&str, u32); 14] = [
    ("afmoe", 4),
    ("cohere2", 4),
    ("exaone-moe", 4),
    ("exaone4", 4),
    ("gemma2", 2),
    ("gemma3", 6),
    ("gemma3n", 5),
    ("gpt-oss", 2),
    ("llama4", 4),
    ("mellum", 4),
    ("muse-glimmer", 4),
    ("olmo2", 4),
    ("plamo3", 8),
    ("smallthinker", 4),
];

/// The header's entries, by what stands behind the architecture's name.
struct Entries<'a> {
    header: &'a Header,
}

impl Entries<'_> {
    fn raw(&self, key: &str) -> Option<&[u8]> {
        let whole = format!("{}.{key}", self.header.architecture);
        let found = self.header.hyperparameters.iter();
        let mut found = found.filter(|(name, raw)| *name == whole && !raw.is_empty());
        found.next().map(|(_, raw)| raw.as_slice())
    }

    /// A number; of an array, its first value.
    fn number(&self, key: &str) -> Option<u32> {
        number(self.raw(key)?)
    }

    /// A number of each layer: from an array with one each, or one for all.
    fn of_layers(&self, key: &str, n_layer: u32) -> Option<Vec<u32>> {
        let raw = self.raw(key)?;
        let n = n_layer as usize;
        if n > 1 && (raw.len() == 4 * n || raw.len() == n) {
            return raw.chunks(raw.len() / n).map(number).collect();
        }
        number(raw).map(|all| vec![all; n])
    }
}

/// A little-endian number of 1, 2, 4 or 8 bytes; of more, the first four.
fn number(raw: &[u8]) -> Option<u32> {
    let len = if raw.len() > 8 { 4 } else { raw.len() };
    let mut wide = [0; 8];
    wide[..len].copy_from_slice(&raw[..len]);
    u32::try_from(u64::from_le_bytes(wide)).ok()
}

/// The shape, or what the header lacks.
pub(super) fn shape(parts: &[(PathBuf, Header)]) -> Result<ModelShape, String> {
    let (path, first) = parts.first().ok_or("it has no parts")?;
    let entries = Entries { header: first };
    let lacks = |key: &str| format!("its header does not say {}.{key}", first.architecture);
    let all_layers = entries
        .number("block_count")
        .ok_or_else(|| lacks("block_count"))?;
    // Layers behind the model's own that foresee more tokens; they are not run for one token.
    let ahead = entries.number("nextn_predict_layers").unwrap_or(0);
    let n_layer = all_layers.saturating_sub(ahead);
    let n_embd = entries
        .number("embedding_length")
        .ok_or_else(|| lacks("embedding_length"))?;

    let mut shape = ModelShape::uniform("", 0, 0, 0, 0, 0);
    shape.name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    shape.n_embd = n_embd;
    let widths = entries.of_layers("feed_forward_length", all_layers);
    shape.n_ff = widths.into_iter().flatten().max().unwrap_or(3 * n_embd);
    shape.trained_ctx = entries.number("context_length").unwrap_or(0);
    attention(&entries, n_layer, n_embd, &mut shape)?;
    let tensors: Vec<&TensorInfo> = parts.iter().flat_map(|(_, part)| &part.tensors).collect();
    weights(&entries, &tensors, n_layer, &mut shape);
    if ahead > 0 {
        let note =
            format!("{ahead} layers that foresee tokens are counted as weights and not as work");
        shape.notes.push(note);
    }
    Ok(shape)
}

/// Which layers have a cache, and of which size.
fn attention(
    entries: &Entries<'_>,
    n_layer: u32,
    n_embd: u32,
    shape: &mut ModelShape,
) -> Result<(), String> {
    let heads = entries
        .of_layers("attention.head_count", n_layer)
        .ok_or("its header names no attention heads")?;
    let kv_heads = entries.of_layers("attention.head_count_kv", n_layer);
    let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
    let most = heads.iter().copied().max().unwrap_or(1).max(1);
    let d_k = entries
        .number("attention.key_length")
        .unwrap_or(n_embd / most);
    let d_v = entries.number("attention.value_length").unwrap_or(d_k);
    let compressed = entries
        .number("attention.kv_lora_rank")
        .filter(|_| entries.raw("attention.key_length_mla").is_some());
    let sliding = sliding_layers(entries, n_layer, &mut shape.notes);
    let full_every = entries.number("full_attention_interval");
    shape.sliding_window = entries.number("attention.sliding_window").unwrap_or(0);

    let mut recurrent = 0u64;
    for layer in 0..n_layer {
        let at = layer as usize;
        let (heads, kv_heads) = (heads[at], kv_heads[at]);
        let skipped = full_every.is_some_and(|every| every > 0 && (layer + 1) % every != 0);
        if kv_heads == 0 || heads == 0 || skipped {
            recurrent += 1;
            continue;
        }
        let of_layer = match compressed {
            // One row for all heads; V is its first part.
            Some(rank) => LayerShape {
                heads,
                d_k,
                d_v: rank,
                k_values: d_k,
                v_values: 0,
            },
            None => LayerShape {
                heads,
                d_k,
                d_v,
                k_values: kv_heads.saturating_mul(d_k),
                v_values: kv_heads.saturating_mul(d_v),
            },
        };
        if sliding[at] {
            shape.sliding.push(of_layer);
        } else {
            shape.layers.push(of_layer);
        }
    }
    shape.state_bytes = recurrent * state_bytes(entries);
    Ok(())
}

/// Which layers see the newest tokens only.
fn sliding_layers(entries: &Entries<'_>, n_layer: u32, notes: &mut Vec<String>) -> Vec<bool> {
    let none = vec![false; n_layer as usize];
    if entries.number("attention.sliding_window").unwrap_or(0) == 0 {
        return none;
    }
    let key = "attention.sliding_window_pattern";
    let is_array = entries.raw(key).is_some_and(|raw| raw.len() > 8);
    if is_array && let Some(of_layers) = entries.of_layers(key, n_layer) {
        return of_layers.into_iter().map(|slides| slides != 0).collect();
    }
    let architecture = entries.header.architecture.as_str();
    let known = FULL_EVERY.iter().find(|(name, _)| *name == architecture);
    let Some(every) = entries.number(key).or(known.map(|(_, every)| *every)) else {
        notes.push(format!(
            "which layers of {architecture} see the newest tokens only is not in the file; every cache is taken to grow"
        ));
        return none;
    };
    let slides = |layer: u32| every == 0 || layer % every < every - 1;
    (0..n_layer).map(slides).collect()
}

/// What a recurrent layer keeps of a sequence.
fn state_bytes(entries: &Entries<'_>) -> u64 {
    let number = |key: &str| u64::from(entries.number(key).unwrap_or(0));
    let (inner, state) = (number("ssm.inner_size"), number("ssm.state_size"));
    let taps = number("ssm.conv_kernel").saturating_sub(1);
    let groups = number("ssm.group_count");
    4 * (taps * (inner + 2 * groups * state) + inner * state)
}

/// Bytes, operations and nodes, from the tensors.
fn weights(entries: &Entries<'_>, tensors: &[&TensorInfo], n_layer: u32, shape: &mut ModelShape) {
    let used = entries.number("expert_used_count").unwrap_or(0);
    let experts = entries.number("expert_count").unwrap_or(0).max(1);
    let share = f64::from(used) / f64::from(experts);
    let has_output = tensors.iter().any(|tensor| tensor.name == "output.weight");
    let mut step_bytes = 0.0;
    shape.nodes = NODES_OF_OUTPUT;
    for tensor in tensors {
        let values: f64 = tensor.dims.iter().map(|dim| *dim as f64).product();
        if tensor.name == "token_embd.weight" {
            shape.n_vocab = tensor.dims.get(1).map_or(0, |n| *n as u32);
            if has_output {
                continue; // one row of it is read, by the host
            }
        }
        shape.weight_bytes += tensor.bytes;
        let layer = layer_of(&tensor.name);
        if layer.is_some_and(|layer| layer >= n_layer) {
            continue;
        }
        let read = if tensor.name.contains("_exps.") {
            share
        } else {
            1.0
        };
        step_bytes += tensor.bytes as f64 * read;
        let is_matrix = tensor.dims.len() > 1;
        if is_matrix {
            shape.token_flops += 2.0 * values * read;
        }
        if layer.is_some() {
            // A norm is two nodes: it is made even, and scaled.
            shape.nodes += 1 + u32::from(!is_matrix && tensor.name.ends_with("norm.weight"));
        }
    }
    shape.nodes += NODES_WITHOUT_WEIGHTS * n_layer;
    shape.step_weight_bytes = step_bytes as u64;
}

/// The layer that a tensor belongs to.
fn layer_of(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(architecture: &str, entries: &[(&str, Vec<u8>)]) -> Header {
        let named = entries
            .iter()
            .map(|(key, raw)| (format!("{architecture}.{key}"), raw.clone()));
        Header {
            architecture: architecture.to_owned(),
            hyperparameters: named.collect(),
            tensors: Vec::new(),
            split_count: 1,
        }
    }

    fn u32s(values: &[u32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn shape_of(architecture: &str, more: &[(&str, Vec<u8>)]) -> Result<ModelShape, String> {
        let mut entries = vec![
            ("block_count", u32s(&[12])),
            ("embedding_length", u32s(&[512])),
            ("attention.head_count", u32s(&[8])),
        ];
        entries.extend(more.iter().cloned());
        shape(&[("/m/some.gguf".into(), header(architecture, &entries))])
    }

    #[test]
    fn heads_of_k_and_v_are_as_many_as_the_file_says() {
        let shape = shape_of("llama", &[("attention.head_count_kv", u32s(&[2]))]).unwrap();
        assert_eq!((shape.layers.len(), shape.name.as_str()), (12, "some"));
        let layer = LayerShape {
            heads: 8,
            d_k: 64,
            d_v: 64,
            k_values: 128,
            v_values: 128,
        };
        assert_eq!(shape.layers[0], layer);
        assert_eq!(shape_of("llama", &[]).unwrap().layers[0].k_values, 512);
    }

    #[test]
    fn sliding_layers_are_those_of_the_file_or_of_the_architecture() {
        let window = ("attention.sliding_window", u32s(&[1024]));
        let gemma = shape_of("gemma3", std::slice::from_ref(&window)).unwrap();
        assert_eq!((gemma.layers.len(), gemma.sliding.len()), (2, 10));
        let mut pattern = vec![1; 12];
        pattern[3] = 0;
        let said = ("attention.sliding_window_pattern", pattern);
        let by_file = shape_of("gemma3", &[window.clone(), said]).unwrap();
        assert_eq!((by_file.layers.len(), by_file.sliding.len()), (1, 11));
        let unknown = shape_of("other", &[window]).unwrap();
        assert_eq!((unknown.layers.len(), unknown.notes.len()), (12, 1));
    }

    #[test]
    fn layers_without_heads_keep_a_state_and_one_row_serves_all_heads_of_mla() {
        let mut heads = vec![0; 12];
        heads[5] = 2;
        let state = [
            ("attention.head_count_kv", u32s(&heads)),
            ("ssm.inner_size", u32s(&[100])),
            ("ssm.state_size", u32s(&[16])),
            ("ssm.conv_kernel", u32s(&[4])),
        ];
        let hybrid = shape_of("other", &state).unwrap();
        assert_eq!(hybrid.layers.len(), 1);
        assert_eq!(hybrid.state_bytes, 11 * 4 * (3 * 100 + 1600));
        let mla = [
            ("attention.head_count_kv", u32s(&[1])),
            ("attention.key_length", u32s(&[576])),
            ("attention.key_length_mla", u32s(&[192])),
            ("attention.kv_lora_rank", u32s(&[512])),
        ];
        let layer = shape_of("deepseek2", &mla).unwrap().layers[0];
        assert_eq!((layer.k_values, layer.v_values, layer.d_v), (576, 0, 512));
    }

    #[test]
    fn a_header_that_lacks_something_says_what() {
        let none = shape(&[("/m/x.gguf".into(), header("llama", &[]))]).unwrap_err();
        assert!(none.contains("llama.block_count"), "{none}");
    }
}
