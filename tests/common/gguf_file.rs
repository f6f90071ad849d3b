//! A writer for model files, so that tests can damage them.

use super::tiny;

const TYPE_U16: u32 = 2;
const TYPE_U32: u32 = 4;
const TYPE_I32: u32 = 5;
const TYPE_F32: u32 = 6;
const TYPE_TEXT: u32 = 8;
const TYPE_ARRAY: u32 = 9;
const ALIGNMENT: usize = 32;

/// A model file under construction.
#[derive(Clone, Default)]
pub struct GgufFile {
    entries: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>)>,
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

impl GgufFile {
    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        let mut bytes = Vec::new();
        text(&mut bytes, key);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
        self.entries.retain(|(name, _)| name != key);
        self.entries.push((key.to_owned(), bytes));
        self
    }

    pub fn u16(&mut self, key: &str, value: u16) -> &mut Self {
        self.entry(key, TYPE_U16, &value.to_le_bytes())
    }

    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.entry(key, TYPE_U32, &value.to_le_bytes())
    }

    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.entry(key, TYPE_F32, &value.to_le_bytes())
    }

    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.entry(key, TYPE_TEXT, &bytes)
    }

    fn array(&mut self, key: &str, kind: u32, count: usize, values: &[u8]) -> &mut Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((count as u64).to_le_bytes());
        bytes.extend(values);
        self.entry(key, TYPE_ARRAY, &bytes)
    }

    pub fn tensor(&mut self, name: &str, shape: &[u64]) -> &mut Self {
        self.tensors.push((name.to_owned(), shape.to_vec()));
        self
    }

    /// The tiny llama of [`tiny::model`], as a file.
    pub fn tiny_llama() -> Self {
        let mut file = Self::default();
        let (texts, scores, kinds) = tiny::vocabulary();
        let mut joined = Vec::new();
        texts.iter().for_each(|word| text(&mut joined, word));
        let scores: Vec<u8> = scores
            .iter()
            .flat_map(|score| score.to_le_bytes())
            .collect();
        let kinds: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
        file.text("general.architecture", "llama")
            .u32("llama.context_length", 512)
            .u32("llama.embedding_length", 64)
            .u32("llama.block_count", 1)
            .u32("llama.feed_forward_length", 96)
            .u32("llama.attention.head_count", 2)
            .u32("llama.attention.head_count_kv", 1)
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
            .text("tokenizer.ggml.model", "llama")
            .array("tokenizer.ggml.tokens", TYPE_TEXT, texts.len(), &joined)
            .array("tokenizer.ggml.scores", TYPE_F32, texts.len(), &scores)
            .array("tokenizer.ggml.token_type", TYPE_I32, texts.len(), &kinds)
            .u32("tokenizer.ggml.bos_token_id", tiny::BOS as u32)
            .u32("tokenizer.ggml.eos_token_id", tiny::EOS as u32);
        let n_vocab = texts.len() as u64;
        file.tensor("token_embd.weight", &[64, n_vocab])
            .tensor("output_norm.weight", &[64])
            .tensor("output.weight", &[64, n_vocab])
            .tensor("blk.0.attn_norm.weight", &[64])
            .tensor("blk.0.attn_q.weight", &[64, 64])
            .tensor("blk.0.attn_k.weight", &[64, 32])
            .tensor("blk.0.attn_v.weight", &[64, 32])
            .tensor("blk.0.attn_output.weight", &[64, 64])
            .tensor("blk.0.ffn_norm.weight", &[64])
            .tensor("blk.0.ffn_gate.weight", &[64, 96])
            .tensor("blk.0.ffn_up.weight", &[64, 96])
            .tensor("blk.0.ffn_down.weight", &[96, 64]);
        file
    }

    /// The model in two parts, as a split model has them.
    pub fn split_in_two(&self) -> (Self, Self) {
        let mut first = self.clone();
        let second_tensors = first.tensors.split_off(6);
        let count = self.tensors.len() as u32;
        let mut second = Self {
            entries: Vec::new(),
            tensors: second_tensors,
        };
        second.text("general.architecture", "llama");
        for (index, part) in [&mut first, &mut second].into_iter().enumerate() {
            part.u16("split.count", 2)
                .u16("split.no", index as u16)
                .entry("split.tensors.count", TYPE_I32, &count.to_le_bytes());
        }
        (first, second)
    }

    /// The header alone.
    fn header(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        self.entries
            .iter()
            .for_each(|(_, entry)| bytes.extend(entry));
        let mut offset = 0usize;
        for (name, shape) in &self.tensors {
            text(&mut bytes, name);
            bytes.extend((shape.len() as u32).to_le_bytes());
            shape
                .iter()
                .for_each(|extent| bytes.extend(extent.to_le_bytes()));
            bytes.extend(0u32.to_le_bytes());
            bytes.extend((offset as u64).to_le_bytes());
            offset += (shape.iter().product::<u64>() as usize * 4).next_multiple_of(ALIGNMENT);
        }
        bytes
    }

    pub fn header_len(&self) -> usize {
        self.header().len()
    }

    /// The whole file, with the weights of [`tiny::weights`].
    pub fn bytes(&self, seed: u64) -> Vec<u8> {
        let mut bytes = self.header();
        for (name, shape) in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
            tiny::weights(name, seed, &mut values);
            values
                .iter()
                .for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }
}
