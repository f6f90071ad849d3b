//! The vocabularies: bytes and a few words, or one token per byte.

use rolling_kv::UserModel;

/// Token of a text that is none.
pub const UNKNOWN: i32 = 0;
/// Token that begins a text.
pub const BOS: i32 = 1;
/// Token that ends a text.
pub const EOS: i32 = 2;
/// Token of byte 0; the other bytes follow.
pub const FIRST_BYTE: i32 = 3;

/// Pieces after the bytes; words that a SentencePiece vocabulary would have.
pub const WORDS: [&str; 12] = [
    "\u{2581}",
    "\u{2581}the",
    "\u{2581}a",
    "he",
    "ll",
    "o",
    "hello",
    "\u{2581}hello",
    "yes",
    "no",
    "12",
    "\u{6b63}",
];

/// How llama.cpp numbers the kinds of tokens.
const KIND_NORMAL: i32 = 1;
const KIND_UNKNOWN: i32 = 2;
const KIND_CONTROL: i32 = 3;
const KIND_BYTE: i32 = 6;

/// Tokens of the vocabulary of bytes and words.
#[must_use]
pub fn n_vocab() -> usize {
    3 + 256 + WORDS.len()
}

/// Texts, scores and kinds of the vocabulary of bytes and words.
#[must_use]
pub fn vocabulary() -> (Vec<String>, Vec<f32>, Vec<i32>) {
    let mut texts: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    let mut kinds = vec![KIND_UNKNOWN, KIND_CONTROL, KIND_CONTROL];
    texts.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    kinds.resize(texts.len(), KIND_BYTE);
    texts.extend(WORDS.map(String::from));
    kinds.resize(texts.len(), KIND_NORMAL);
    let scores = (0..texts.len()).map(|index| -(index as f32)).collect();
    (texts, scores, kinds)
}

/// The description with the vocabulary of bytes and words.
pub(crate) fn with_words(description: UserModel) -> UserModel {
    let (texts, scores, kinds) = vocabulary();
    description
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &texts)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .u32("tokenizer.ggml.bos_token_id", BOS as u32)
        .u32("tokenizer.ggml.eos_token_id", EOS as u32)
        .u32("tokenizer.ggml.unknown_token_id", UNKNOWN as u32)
}

/// The description with one token per byte and no merges.
pub(crate) fn with_byte_pairs(description: UserModel, patterns: &str) -> UserModel {
    const END: u32 = 256;
    let texts: Vec<String> = spelled_bytes().chain([String::from("<end>")]).collect();
    let kinds: Vec<i32> = (0..256)
        .map(|_| KIND_NORMAL)
        .chain([KIND_CONTROL])
        .collect();
    description
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", patterns)
        .texts("tokenizer.ggml.tokens", &texts)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .texts("tokenizer.ggml.merges", &["a b".into()])
        .u32("tokenizer.ggml.bos_token_id", END)
        .u32("tokenizer.ggml.eos_token_id", END)
}

/// Each byte as a character: those that are no printable Latin-1 character by the characters from U+0100 on.
fn spelled_bytes() -> impl Iterator<Item = String> {
    let printable =
        |byte: u8| byte.is_ascii_graphic() || (0xA1..0xAD).contains(&byte) || byte >= 0xAE;
    let mut others = '\u{100}'..='\u{17f}';
    (0..=u8::MAX).filter_map(move |byte| {
        let spelled = if printable(byte) {
            Some(char::from(byte))
        } else {
            others.next()
        };
        spelled.map(String::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_spelled_by_one_character_of_its_own() {
        let spelled: Vec<String> = spelled_bytes().collect();
        let different: std::collections::HashSet<&String> = spelled.iter().collect();
        assert_eq!((spelled.len(), different.len()), (256, 256));
        assert!(spelled.iter().all(|text| text.chars().count() == 1));
        assert_eq!(
            (spelled[0x41].as_str(), spelled[0x20].as_str()),
            ("A", "\u{120}")
        );
    }

    #[test]
    fn every_token_has_a_text_a_score_and_a_kind() {
        let (texts, scores, kinds) = vocabulary();
        assert_eq!([texts.len(), scores.len(), kinds.len()], [n_vocab(); 3]);
        assert_eq!(texts[FIRST_BYTE as usize], "<0x00>");
    }
}
