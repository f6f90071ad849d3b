//! Words to count: those that stand most often are asked for.

use super::fit::{FitError, Tokens, exactly, most};
use super::words::{PLAIN, Random, different};
use super::{Sample, Task};

/// Words that stand often in the list of common words.
const COMMON: usize = 10;

/// Most often named words of made-up ones.
const FREQUENT: usize = 3;

/// Ranks of made-up words. Beyond, none would stand once.
const RANKS: usize = 40;

/// Words in an order that a seed gives.
fn shuffled(mut words: Vec<&str>, seed: usize, mark: &str) -> String {
    Random::new(seed as u64).shuffle(&mut words);
    words.join(mark)
}

/// A list in which ten words stand ten times as often as every other one.
pub fn common(length: usize, random: &mut Random, tokens: &dyn Tokens) -> Result<Sample, FitError> {
    let mut plain = PLAIN.to_vec();
    random.shuffle(&mut plain);
    let (often, seldom) = plain.split_at(COMMON);
    let often_count = (length / 40).clamp(4, 30);
    let seldom_count = (often_count / 10).max(1);
    // When the plain words are used up, pairs of words follow.
    let pairs = different((length / 4).min(3000), || random.key());
    let seldom: Vec<&str> = seldom
        .iter()
        .copied()
        .chain(pairs.iter().map(String::as_str))
        .collect();
    let seed = random.below(1 << 30);
    let make = |n: usize, fill: &str| {
        let words = often
            .iter()
            .flat_map(|word| std::iter::repeat_n(*word, often_count))
            .chain(
                seldom[..n]
                    .iter()
                    .flat_map(|word| std::iter::repeat_n(*word, seldom_count)),
            );
        format!(
            "This is a list of words, some of which come again and again.\n\n{}.{fill}\n\nWhich {COMMON} words come most often in the list above?\nAnswer: The {COMMON} words are",
            shuffled(words.collect(), seed, ", ")
        )
    };
    let n = most(length, seldom.len(), tokens, &|n| make(n, ""))?;
    Ok(Sample {
        task: Task::CommonWords,
        prompt: exactly(length, tokens, &|fill| make(n, fill))?,
        answers: often.iter().map(|word| (*word).to_owned()).collect(),
        needle: None,
    })
}

/// Made-up words, the word of rank r in proportion to 1/r^2.
pub fn frequent(
    length: usize,
    random: &mut Random,
    tokens: &dyn Tokens,
) -> Result<Sample, FitError> {
    const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
    const VOWELS: &[u8] = b"aeiou";
    let words = different(RANKS, || {
        (0..6)
            .map(|at| {
                let letters = if at % 2 == 0 { CONSONANTS } else { VOWELS };
                char::from(letters[random.below(letters.len())])
            })
            .collect()
    });
    let seed = random.below(1 << 30);
    let make = |n: usize, fill: &str| {
        let list = words.iter().enumerate().flat_map(|(rank, word)| {
            let share = ((rank + 1) * (rank + 1)) as f64;
            // The asked ones stand there however short the text is, each more often than the next.
            let least = (FREQUENT + 1).saturating_sub(rank);
            std::iter::repeat_n(word.as_str(), ((n as f64 / share) as usize).max(least))
        });
        format!(
            "This text is written in words of a made-up language.\n\n{}.{fill}\n\nWhich {FREQUENT} words of the made-up language come most often in the text above?\nAnswer: The {FREQUENT} words are",
            shuffled(list.collect(), seed, " ")
        )
    };
    let n = most(length, length, tokens, &|n| make(n, ""))?;
    Ok(Sample {
        task: Task::FrequentWords,
        prompt: exactly(length, tokens, &|fill| make(n, fill))?,
        answers: words[..FREQUENT].to_vec(),
        needle: None,
    })
}
