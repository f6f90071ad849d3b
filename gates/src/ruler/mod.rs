//! The tasks of RULER (<https://arxiv.org/abs/2404.06654>), made offline with the model's own tokens to an exact length: needles to
//! find, variables to trace, and words to count. The wording is ours; what varies between tasks, and how answers are scored, is
//! RULER's.

mod fit;
mod haystack;
mod needles;
mod words;
mod words_to_count;

use serde::Serialize;

pub use fit::{FitError, Tokens};

use words::Random;

/// A task of RULER's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// One number behind a word, in noise that repeats.
    Single1,
    /// One number behind a word, in an essay.
    Single2,
    /// One long identifier behind a word, in an essay.
    Single3,
    /// Four words with a number each in an essay; one is asked for.
    MultiKey1,
    /// Nothing but words with a number each; one is asked for.
    MultiKey2,
    /// Nothing but identifiers with an identifier each; one is asked for.
    MultiKey3,
    /// Four numbers behind one word; all are asked for.
    MultiValue,
    /// Four words with a number each; all are asked for.
    MultiQuery,
    /// A number that goes from variable to variable; all that hold it are asked for.
    VariableTracking,
    /// Words of which ten stand ten times as often as the others.
    CommonWords,
    /// Made-up words of which a few stand most often (Zipf's law with exponent 2).
    FrequentWords,
}

impl Task {
    /// Every task, in RULER's order.
    pub const ALL: [Self; 11] = [
        Self::Single1,
        Self::Single2,
        Self::Single3,
        Self::MultiKey1,
        Self::MultiKey2,
        Self::MultiKey3,
        Self::MultiValue,
        Self::MultiQuery,
        Self::VariableTracking,
        Self::CommonWords,
        Self::FrequentWords,
    ];

    /// RULER's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single1 => "niah_single_1",
            Self::Single2 => "niah_single_2",
            Self::Single3 => "niah_single_3",
            Self::MultiKey1 => "niah_multikey_1",
            Self::MultiKey2 => "niah_multikey_2",
            Self::MultiKey3 => "niah_multikey_3",
            Self::MultiValue => "niah_multivalue",
            Self::MultiQuery => "niah_multiquery",
            Self::VariableTracking => "vt",
            Self::CommonWords => "cwe",
            Self::FrequentWords => "fwe",
        }
    }

    /// The task of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    /// Whether there is a needle whose place can be chosen.
    #[must_use]
    pub fn has_needle(self) -> bool {
        !matches!(
            self,
            Self::VariableTracking | Self::CommonWords | Self::FrequentWords
        )
    }
}

/// Where the needle that is asked for stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Place {
    /// At so many percent of the text.
    Depth(f64),
    /// So that its tokens lie on both sides of this one.
    Astride(usize),
    /// So that it begins at this token, as nearly as whole sentences allow.
    Token(usize),
}

/// One question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// The task.
    pub task: Task,
    /// The text, the question, and the beginning of its answer.
    pub prompt: String,
    /// What the answer must hold.
    pub answers: Vec<String>,
    /// The needle that is asked for, as it stands in the text; the first where there are several.
    pub needle: Option<String>,
}

impl Sample {
    /// Makes a question of exactly `length` tokens. `essay` is the haystack of those tasks that want one.
    ///
    /// # Errors
    /// When the question alone is longer, or no text has exactly that many tokens.
    pub fn make(
        task: Task,
        length: usize,
        place: Place,
        seed: u64,
        essay: &str,
        tokens: &dyn Tokens,
    ) -> Result<Self, FitError> {
        let mut random = Random::new(seed ^ (task as u64) << 32);
        match task {
            Task::CommonWords => words_to_count::common(length, &mut random, tokens),
            Task::FrequentWords => words_to_count::frequent(length, &mut random, tokens),
            Task::VariableTracking => needles::variables(length, &mut random, tokens),
            _ => needles::sample(task, length, place, &mut random, essay, tokens),
        }
    }

    /// RULER's score of an answer: the share of what it must hold that it holds, whatever the case.
    #[must_use]
    pub fn score(&self, answer: &str) -> f64 {
        let answer = answer.to_lowercase();
        let held = self
            .answers
            .iter()
            .filter(|wanted| answer.contains(&wanted.to_lowercase()));
        held.count() as f64 / self.answers.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words and marks: enough like a tokenizer for these tests.
    struct Words;

    impl Tokens for Words {
        fn count(&self, text: &str) -> Result<usize, FitError> {
            Ok(text
                .split_inclusive(|c: char| c.is_whitespace() || c.is_ascii_punctuation())
                .filter(|piece| !piece.trim().is_empty())
                .count())
        }
    }

    fn essay() -> String {
        crate::noise_text(3, 5000)
    }

    #[test]
    fn every_task_has_exactly_as_many_tokens_as_asked_for_and_holds_its_answers() {
        for task in Task::ALL {
            for length in [400, 777, 1500] {
                let sample =
                    Sample::make(task, length, Place::Depth(50.0), 7, &essay(), &Words).unwrap();
                assert_eq!(
                    Words.count(&sample.prompt).unwrap(),
                    length,
                    "{}",
                    task.name()
                );
                assert!(!sample.answers.is_empty());
                for answer in &sample.answers {
                    assert!(sample.prompt.contains(answer.as_str()), "{}", task.name());
                }
                assert_eq!(sample.score(&sample.answers.join(", ").to_uppercase()), 1.0);
                assert_eq!(sample.score("nothing of it"), 0.0);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_question() {
        let make = |seed| {
            Sample::make(Task::MultiKey2, 500, Place::Depth(25.0), seed, "", &Words).unwrap()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1).answers, make(2).answers);
    }

    #[test]
    fn the_needle_stands_where_it_was_asked_for() {
        for task in Task::ALL.into_iter().filter(|task| task.has_needle()) {
            let at = |place| {
                let sample = Sample::make(task, 1200, place, 5, &essay(), &Words).unwrap();
                let needle = sample.needle.clone().unwrap();
                let start = sample.prompt.find(&needle).unwrap();
                let first = Words.count(&sample.prompt[..start]).unwrap();
                (first, Words.count(&needle).unwrap())
            };
            let (early, _) = at(Place::Depth(0.0));
            let (middle, _) = at(Place::Depth(50.0));
            let (late, _) = at(Place::Depth(100.0));
            assert!(
                early < 120 && late > 1000,
                "{}: {early} {late}",
                task.name()
            );
            assert!(middle.abs_diff(600) < 120, "{}: {middle}", task.name());
            let (first, tokens) = at(Place::Astride(512));
            assert!(
                first < 512 && first + tokens > 512,
                "{}: {first} {tokens}",
                task.name()
            );
        }
    }

    #[test]
    fn what_is_too_short_is_said() {
        let error = Sample::make(Task::Single1, 10, Place::Depth(0.0), 1, "", &Words).unwrap_err();
        assert!(error.to_string().contains("10 tokens"), "{error}");
    }

    #[test]
    fn names_are_unique_and_found_again() {
        for task in Task::ALL {
            assert_eq!(Task::of_name(task.name()), Some(task));
        }
        assert_eq!(Task::of_name("niah_single_9"), None);
    }
}
