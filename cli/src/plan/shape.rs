//! Models that are not here, as words.

use rolling_kv::ModelShape;

use crate::device::scaled;

/// Models by name, with what they are.
const KNOWN: [(&str, &str); 2] = [
    // Qwen2.5-14B as Q4_K_M.
    (
        "14b",
        "layers=48,heads=40,kv-heads=8,head-dim=128,weights=8.99GB,params=14.8B,vocab=152064,embd=5120,ff=13824",
    ),
    // Llama 3.1 70B as Q4_K_M.
    (
        "70b",
        "layers=80,heads=64,kv-heads=8,head-dim=128,weights=42.5GB,params=70.6B,vocab=128256,embd=8192,ff=28672",
    ),
];

const BYTES: [(&str, f64); 4] = [
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("GB", 1e9),
    ("MB", 1e6),
];

/// The most of anything that is counted: far more than any model has.
const MOST: u32 = 1 << 24;

/// What `--shape` means.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeArg(pub ModelShape);

impl ShapeArg {
    /// Reads a name, or a list of keys.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = KNOWN.iter().find(|(name, _)| *name == text);
        let (name, words) = known.map_or(("a model", text), |(name, words)| (*name, *words));
        let mut counts = [None; 4];
        let [mut weights, mut params] = [None; 2];
        let mut more = Vec::new();
        for word in words.split(',') {
            let wrong = |expected: &str| format!("{word:?} is not understood; {expected}");
            let (key, value) = word.split_once('=').ok_or_else(|| {
                let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
                wrong(&format!(
                    "give {}, or layers=48,heads=40,kv-heads=8,head-dim=128,weights=9GiB",
                    names.join(", ")
                ))
            })?;
            let count = || count(value).ok_or_else(|| wrong("give a whole number from 1"));
            match key {
                "layers" => counts[0] = Some(count()?),
                "heads" => counts[1] = Some(count()?),
                "kv-heads" => counts[2] = Some(count()?),
                "head-dim" => counts[3] = Some(count()?),
                "weights" => {
                    let bytes = scaled(value, &BYTES).filter(|bytes| *bytes >= 1.0);
                    weights = Some(bytes.ok_or_else(|| wrong("give it as 9GiB"))?);
                }
                "params" => {
                    let params_of = scaled(value, &[("B", 1e9), ("M", 1e6)]).filter(|n| *n >= 1.0);
                    params = Some(params_of.ok_or_else(|| wrong("give it as 14.8B"))?);
                }
                "vocab" | "embd" | "ff" => more.push((key.to_owned(), count()?)),
                _ => {
                    return Err(wrong(
                        "the keys are layers, heads, kv-heads, head-dim, weights, params, vocab, embd and ff",
                    ));
                }
            }
        }
        let ([Some(layers), Some(heads), Some(kv_heads), Some(head_dim)], Some(weights)) =
            (counts, weights)
        else {
            return Err("layers, heads, kv-heads, head-dim and weights are all needed".into());
        };
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "{heads} heads cannot share {kv_heads} KV heads evenly"
            ));
        }
        let mut shape =
            ModelShape::uniform(name, layers, heads, kv_heads, head_dim, weights as u64);
        for (key, value) in more {
            match key.as_str() {
                "vocab" => shape.n_vocab = value,
                "embd" => shape.n_embd = value,
                _ => shape.n_ff = value,
            }
        }
        if let Some(params) = params {
            shape.token_flops = 2.0 * params;
        }
        Ok(Self(shape))
    }
}

fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=MOST).contains(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rolling_kv::KvType;

    #[test]
    fn a_shape_is_a_name_or_its_keys() {
        for (name, _) in KNOWN {
            let ShapeArg(shape) = ShapeArg::parse(name).unwrap();
            assert_eq!(shape.name, name);
        }
        let ShapeArg(shape) =
            ShapeArg::parse("layers=48,heads=40,kv-heads=8,head-dim=128,weights=9GiB").unwrap();
        assert_eq!(shape.weight_bytes, 9 << 30);
        assert_eq!(
            shape.cell_bytes(KvType::F16, KvType::F16),
            48 * 2 * 8 * 128 * 2
        );
    }

    #[test]
    fn what_is_no_shape_says_what_is() {
        let rest = "heads=4,kv-heads=2,head-dim=64,weights=1GiB";
        for (text, word) in [
            ("", "14b"),
            ("13b", "layers="),
            (rest, "all needed"),
            (&format!("layers=0,{rest}"), "from 1"),
            (&format!("layers=2,depth=3,{rest}"), "the keys are"),
            (
                "layers=2,heads=4,kv-heads=3,head-dim=64,weights=1GiB",
                "evenly",
            ),
            (
                "layers=2,heads=4,kv-heads=2,head-dim=64,weights=lots",
                "9GiB",
            ),
            (
                "layers=2,heads=4,kv-heads=2,head-dim=64,weights=nanGiB",
                "9GiB",
            ),
        ] {
            let error = ShapeArg::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
