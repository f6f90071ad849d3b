//! What needles are hidden in: sentences, one after the other.

use super::words::Random;

/// Sentences that repeat, without meaning for any question.
const NOISE: [&str; 5] = [
    "The clouds pass over the hills.",
    "Water runs down to the sea.",
    "A door opens, and it closes.",
    "Here is a road, and there is another.",
    "Day comes after night.",
];

/// `count` sentences of noise.
pub fn noise(count: usize) -> Vec<String> {
    (0..count)
        .map(|at| NOISE[at % NOISE.len()].to_owned())
        .collect()
}

/// `count` sentences of an essay, from its beginning again when it ends. Without an essay, noise in no fixed order.
pub fn essay(text: &str, count: usize, random: &mut Random) -> Vec<String> {
    let sentences = sentences(text);
    if sentences.is_empty() {
        return (0..count)
            .map(|_| NOISE[random.below(NOISE.len())].to_owned())
            .collect();
    }
    (0..count)
        .map(|at| sentences[at % sentences.len()].clone())
        .collect()
}

/// A text cut behind each full stop, question mark or exclamation mark that a blank follows.
fn sentences(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = String::new();
    for word in text.split_whitespace() {
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
        if word.ends_with(['.', '?', '!']) {
            all.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        all.push(current);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_essay_is_cut_into_its_sentences_and_begins_again() {
        let mut random = Random::new(1);
        let text = "One is 3.5 long.  Two?\nThree";
        assert_eq!(
            essay(text, 4, &mut random),
            ["One is 3.5 long.", "Two?", "Three", "One is 3.5 long."]
        );
        assert_eq!(essay("", 3, &mut random).len(), 3);
    }
}
