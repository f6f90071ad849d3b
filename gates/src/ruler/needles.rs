//! Needles in a text, and variables in noise.

use super::fit::{FitError, Tokens, exactly, most};
use super::words::{Random, different};
use super::{Place, Sample, Task, haystack};

/// What a task hides.
struct Kind {
    /// Words that have a value.
    keys: usize,
    /// Values of each.
    values: usize,
    /// Keys that are asked for, from the first on.
    asked: usize,
    key_is_identifier: bool,
    value_is_identifier: bool,
    haystack: Haystack,
}

#[derive(PartialEq)]
enum Haystack {
    Noise,
    Essay,
    Needles,
}

fn kind(task: Task) -> Kind {
    let one = Kind {
        keys: 1,
        values: 1,
        asked: 1,
        key_is_identifier: false,
        value_is_identifier: false,
        haystack: Haystack::Essay,
    };
    match task {
        Task::Single1 => Kind {
            haystack: Haystack::Noise,
            ..one
        },
        Task::Single3 => Kind {
            value_is_identifier: true,
            ..one
        },
        Task::MultiKey1 => Kind { keys: 4, ..one },
        Task::MultiKey2 => Kind {
            haystack: Haystack::Needles,
            ..one
        },
        Task::MultiKey3 => Kind {
            key_is_identifier: true,
            value_is_identifier: true,
            haystack: Haystack::Needles,
            ..one
        },
        Task::MultiValue => Kind { values: 4, ..one },
        Task::MultiQuery => Kind {
            keys: 4,
            asked: 4,
            ..one
        },
        _ => one,
    }
}

/// A haystack, what is hidden in it, and the words around it.
struct Text {
    intro: String,
    sentences: Vec<String>,
    /// The needle whose place is asked for.
    first: String,
    /// The others, each at a share of what there is.
    others: Vec<(f64, String)>,
    question: String,
}

impl Text {
    /// `n` sentences, the first needle behind `at` of them and `lead`, the others spread over those from `from` on, and `fill` at the end.
    fn make(&self, n: usize, at: usize, from: usize, lead: &str, fill: &str) -> String {
        let at = at.min(n);
        let mut hidden: Vec<(usize, String)> = self
            .others
            .iter()
            .map(|(share, needle)| {
                let range = (n - from.min(n)) as f64;
                (from.min(n) + (share * range) as usize, needle.clone())
            })
            .collect();
        hidden.sort_by_key(|(index, _)| *index);
        let mut text = self.intro.clone();
        let mut hidden = hidden.into_iter().peekable();
        for index in 0..=n {
            if index == at {
                text.push_str(lead);
                text.push(' ');
                text.push_str(&self.first);
            }
            while let Some((_, needle)) = hidden.next_if(|(place, _)| *place <= index) {
                text.push(' ');
                text.push_str(&needle);
            }
            if let Some(sentence) = self.sentences.get(index).filter(|_| index < n) {
                text.push(' ');
                text.push_str(sentence);
            }
        }
        text + fill + &self.question
    }

    /// What stands in front of the first needle.
    fn before(&self, at: usize) -> String {
        let mut text = self.intro.clone();
        for sentence in &self.sentences[..at] {
            text.push(' ');
            text.push_str(sentence);
        }
        text
    }

    fn at_depth(
        &self,
        percent: f64,
        length: usize,
        tokens: &dyn Tokens,
    ) -> Result<String, FitError> {
        let at = |n: usize| (n as f64 * percent / 100.0).round() as usize;
        let n = most(length, self.sentences.len(), tokens, &|n| {
            self.make(n, at(n), 0, "", "")
        })?;
        exactly(length, tokens, &|fill| self.make(n, at(n), 0, "", fill))
    }

    /// The first needle begins at token `start`, or up to `slack` tokens earlier.
    fn at_token(
        &self,
        start: usize,
        length: usize,
        tokens: &dyn Tokens,
    ) -> Result<String, FitError> {
        let at = most(start, self.sentences.len(), tokens, &|at| self.before(at))?;
        let missing = start.saturating_sub(tokens.count(&self.before(at))?);
        let lead = " and".repeat(missing);
        let n = most(length, self.sentences.len() - at, tokens, &|n| {
            self.make(at + n, at, at, &lead, "")
        })?;
        exactly(length, tokens, &|fill| {
            self.make(at + n, at, at, &lead, fill)
        })
    }
}

/// Sentences that a text of `length` tokens has at most; each has several tokens.
fn sentences_for(length: usize) -> usize {
    length / 4 + 4
}

fn noun(identifier: bool) -> &'static str {
    if identifier { "code" } else { "number" }
}

fn needle(noun: &str, key: &str, value: &str) -> String {
    format!("The secret {noun} of {key} is {value}.")
}

/// A task of needles.
pub fn sample(
    task: Task,
    length: usize,
    place: Place,
    random: &mut Random,
    essay: &str,
    tokens: &dyn Tokens,
) -> Result<Sample, FitError> {
    let kind = kind(task);
    let noun = noun(kind.value_is_identifier);
    let count = sentences_for(length);
    let strangers = if kind.haystack == Haystack::Needles {
        count.min(3000)
    } else {
        0
    };
    let keys = different(kind.keys + strangers, || {
        if kind.key_is_identifier {
            random.identifier()
        } else {
            random.key()
        }
    });
    let values = different(kind.keys * kind.values + strangers, || {
        if kind.value_is_identifier {
            random.identifier()
        } else {
            random.number()
        }
    });
    let (own_keys, stranger_keys) = keys.split_at(kind.keys);
    let (own_values, stranger_values) = values.split_at(kind.keys * kind.values);

    let mut needles: Vec<String> = own_values
        .iter()
        .enumerate()
        .map(|(at, value)| needle(noun, &own_keys[at / kind.values], value))
        .collect();
    let first = needles.remove(0);
    let sentences = match kind.haystack {
        Haystack::Noise => haystack::noise(count),
        Haystack::Essay => haystack::essay(essay, count, random),
        Haystack::Needles => stranger_keys
            .iter()
            .zip(stranger_values)
            .map(|(key, value)| needle(noun, key, value))
            .collect(),
    };
    let others = needles
        .into_iter()
        .map(|needle| (random.below(1000) as f64 / 1000.0, needle))
        .collect();
    let asked = own_keys[..kind.asked].join(", ");
    let several = kind.asked * kind.values > 1;
    let question = if several {
        format!(
            "\n\nWhat are all the secret {noun}s of {asked} in the text above?\nAnswer: The secret {noun}s of {asked} are"
        )
    } else {
        format!(
            "\n\nWhat is the secret {noun} of {asked} in the text above?\nAnswer: The secret {noun} of {asked} is"
        )
    };
    let text = Text {
        intro: format!(
            "Secret {noun}s are hidden in this text. Keep them in mind; a question about them comes at the end.\n\n"
        ),
        sentences,
        first,
        others,
        question,
    };
    let prompt = placed(&text, place, length, tokens)?;
    Ok(Sample {
        task,
        prompt,
        answers: own_values[..kind.asked * kind.values].to_vec(),
        needle: Some(text.first),
    })
}

fn placed(
    text: &Text,
    place: Place,
    length: usize,
    tokens: &dyn Tokens,
) -> Result<String, FitError> {
    match place {
        Place::Depth(percent) => text.at_depth(percent, length, tokens),
        Place::Token(start) => text.at_token(start, length, tokens),
        Place::Astride(token) => {
            let own = tokens.count(&text.first)?;
            let start = token.saturating_sub(own / 2);
            let prompt = text.at_token(start, length, tokens)?;
            let before = prompt.find(&text.first).unwrap_or(0);
            let first = tokens.count(&prompt[..before])?;
            let end = tokens.count(&prompt[..before + text.first.len()])?;
            if first < token && token < end {
                Ok(prompt)
            } else {
                Err(FitError::NotAstride { token, length })
            }
        }
    }
}

/// Assignments that a number goes through.
const HOPS: usize = 4;

/// One chain of variables, in noise.
pub fn variables(
    length: usize,
    random: &mut Random,
    tokens: &dyn Tokens,
) -> Result<Sample, FitError> {
    let names = different(HOPS + 1, || {
        (0..5)
            .map(|_| char::from(b'A' + random.below(26) as u8))
            .collect()
    });
    let value = (10_000 + random.below(90_000)).to_string();
    let mut steps = vec![format!("Let {} be {value}.", names[0])];
    for pair in names.windows(2) {
        steps.push(format!("Let {} be what {} is.", pair[1], pair[0]));
    }
    let first = steps.remove(0);
    let others = steps
        .into_iter()
        .enumerate()
        .map(|(at, step)| ((at + 1) as f64 / (HOPS + 1) as f64, step))
        .collect();
    let text = Text {
        intro: "Values of variables are given in this text. Keep track of them; a question about them comes at the end.\n\n".into(),
        sentences: haystack::noise(sentences_for(length)),
        first,
        others,
        question: format!(
            "\n\nWhich {} variables have the value {value} in the text above?\nAnswer: The variables that have the value {value} are",
            HOPS + 1
        ),
    };
    let prompt = text.at_depth(0.0, length, tokens)?;
    Ok(Sample {
        task: Task::VariableTracking,
        prompt,
        answers: names,
        needle: None,
    })
}
