//! Needles in a haystack, with the cache resident and spilled: both must say the same, word by word and bit by bit.

use rolling_kv::{
    AddSpecial, Context, ContextParams, Fault, Model, Order, ParseSpecial, RenderSpecial,
    RollingKv, Token,
};
use serde::{Deserialize, Serialize};

use crate::decode_time::Digest;
use crate::error::GateError;
use crate::logit_equiv::Inject;
use crate::niah_report::NiahReport;
use crate::ruler::{FitError, Place, Sample, Task, Tokens};
use crate::store::Store;
use crate::subject;

/// Where the needle that is asked for stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Spot {
    /// At so many percent of the text.
    Depth(f64),
    /// In the middle of the window.
    Window,
    /// In the middle of the tail.
    Tail,
    /// On both sides of the window's end.
    Border,
    /// In the newest rows.
    Newest,
}

impl Spot {
    /// How it is named in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Depth(percent) => format!("{percent}%"),
            Self::Window => "window".into(),
            Self::Tail => "tail".into(),
            Self::Border => "border".into(),
            Self::Newest => "newest".into(),
        }
    }

    pub(crate) fn place(self, length: usize, window: usize) -> Place {
        match self {
            Self::Depth(percent) => Place::Depth(percent),
            Self::Window => Place::Token(window / 2),
            Self::Tail => Place::Token(window.midpoint(length)),
            Self::Border => Place::Astride(window),
            Self::Newest => Place::Depth(100.0),
        }
    }
}

/// RULER's tasks at several lengths and depths.
#[derive(Debug, Clone)]
pub struct Niah {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Tokens of a question, exactly.
    pub lengths: Vec<u32>,
    /// Where the needle stands. Tasks without one are asked once a length.
    pub spots: Vec<Spot>,
    /// Cells of each layer in the window, in percent of the context.
    pub window_percent: u32,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the questions.
    pub seed: u64,
    /// Haystack of the tasks that want an essay.
    pub essay: String,
    /// A fault to put into the spilled runs.
    pub inject: Option<Inject>,
}

/// What one run said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Said {
    /// The answer, from the most probable token at each step.
    pub answer: String,
    /// RULER's score of it, from 0 to 1.
    pub score: f64,
    /// Log-probability of each token of the right answer, given those before, in nats.
    pub log_probs: Vec<f32>,
    /// A digest of every logit of every step, bit by bit.
    pub digest: u64,
    /// Tiles read from a tail.
    pub tiles_tail: u64,
}

impl Said {
    /// Log-probability of the right answer, in nats.
    #[must_use]
    pub fn log_prob(&self) -> f64 {
        self.log_probs.iter().copied().map(f64::from).sum()
    }
}

/// One question and what both runs said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Asked {
    /// RULER's name of the task.
    pub task: String,
    /// Tokens of the question.
    pub length: u32,
    /// Where the needle stood.
    pub spot: String,
    /// Cells of each layer in the window, and in all.
    pub window_cells: u32,
    /// Cells of each layer.
    pub n_ctx: u32,
    /// What the answer must hold.
    pub wanted: Vec<String>,
    /// With every cell in the window.
    pub resident: Said,
    /// With the window alone on the device.
    pub spilled: Said,
}

#[cfg(test)]
impl Said {
    pub(crate) fn for_tests(answer: &str, score: f64, digest: u64) -> Self {
        Self {
            answer: answer.into(),
            score,
            log_probs: vec![-0.5],
            digest,
            tiles_tail: 1,
        }
    }
}

#[cfg(test)]
impl Asked {
    pub(crate) fn for_tests(task: &str, resident: Said, spilled: Said) -> Self {
        Self {
            task: task.into(),
            length: 512,
            spot: "50%".into(),
            window_cells: 128,
            n_ctx: 768,
            wanted: vec!["42".into()],
            resident,
            spilled,
        }
    }
}

impl Asked {
    /// Whether both runs said the same, bit by bit.
    #[must_use]
    pub fn equal(&self) -> bool {
        self.resident.digest == self.spilled.digest && self.resident.answer == self.spilled.answer
    }
}

/// Cells of a tile.
const TILE: u32 = 128;
/// Tokens of one batch of the prompt.
const BATCH: usize = 512;

/// Tokens of an answer, as RULER gives each task.
pub(crate) fn answer_tokens(task: Task) -> u32 {
    match task {
        Task::VariableTracking => 30,
        Task::CommonWords => 120,
        Task::FrequentWords => 50,
        _ => 128,
    }
}

/// The tokens of a model's vocabulary.
pub(crate) struct Counted<'a>(pub(crate) &'a Model);

impl Counted<'_> {
    pub(crate) fn tokens(&self, text: &str, special: AddSpecial) -> Result<Vec<Token>, FitError> {
        self.0
            .vocab()
            .tokenize(text, special, ParseSpecial::No)
            .map_err(|error| FitError::Vocabulary(error.to_string()))
    }
}

impl Tokens for Counted<'_> {
    fn count(&self, text: &str) -> Result<usize, FitError> {
        Ok(self.tokens(text, AddSpecial::Auto)?.len())
    }
}

impl Niah {
    /// Asks every question twice. `progress` is told the share that is done; what `store` knows is not asked again.
    ///
    /// # Errors
    /// When a question cannot be made, a context is refused, or nothing spilled.
    pub fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<NiahReport, GateError> {
        subject::check(model)?;
        let cells = self.cells();
        // Long questions take longer, by more than their length.
        let weight = |length: u32| f64::from(length).powf(1.3);
        let total: f64 = cells.iter().map(|(_, length, _)| weight(*length)).sum();
        let mut done = 0.0;
        let mut asked = Vec::new();
        for (task, length, spot) in cells {
            let name = format!("{} {length} {}", task.name(), spot.name());
            asked.push(store.get(&name, || self.ask(model, task, length, spot))?);
            done += weight(length);
            progress("asking", done / total);
        }
        NiahReport::judge(asked)
    }

    fn cells(&self) -> Vec<(Task, u32, Spot)> {
        let mut cells = Vec::new();
        for &task in &self.tasks {
            for &length in &self.lengths {
                let spots = if task.has_needle() {
                    &self.spots[..]
                } else {
                    &[Spot::Depth(50.0)]
                };
                cells.extend(spots.iter().map(|&spot| (task, length, spot)));
            }
        }
        cells
    }

    fn ask(&self, model: &Model, task: Task, length: u32, spot: Spot) -> Result<Asked, GateError> {
        let n_ctx = (length + answer_tokens(task)).next_multiple_of(256);
        let window = (u64::from(n_ctx) * u64::from(self.window_percent) / 100) as u32 / TILE * TILE;
        if window >= length {
            return Err(GateError::NothingSpills {
                window_cells: window,
                n_ctx: length,
            });
        }
        let counted = Counted(model);
        let place = spot.place(length as usize, window as usize);
        let seed = self.seed ^ u64::from(length) << 8;
        let sample = Sample::make(task, length as usize, place, seed, &self.essay, &counted)?;
        let run = |spill: RollingKv, inject| self.say(model, &sample, n_ctx, spill, inject);
        let resident = run(RollingKv::resident(), None)?;
        let spilled = run(RollingKv::window_cells(window), self.inject)?;
        if spilled.tiles_tail == 0 {
            return Err(GateError::NotEngaged);
        }
        Ok(Asked {
            task: task.name().into(),
            length,
            spot: spot.name(),
            window_cells: window,
            n_ctx,
            wanted: sample.answers,
            resident,
            spilled,
        })
    }

    fn say(
        &self,
        model: &Model,
        sample: &Sample,
        n_ctx: u32,
        spill: RollingKv,
        inject: Option<Inject>,
    ) -> Result<Said, GateError> {
        let spill = spill.order(Order::Tiled).tile_cells(TILE);
        let params = ContextParams::new(n_ctx)
            .threads(self.threads)
            .rolling_kv(spill);
        let mut context = model.context(&params).map_err(rolling_kv::Error::from)?;
        let _fault = inject.and_then(|fault| match fault {
            Inject::Drop => Some(Fault::DropTile.inject()),
            Inject::Stale => Some(Fault::StaleTile.inject()),
            Inject::Flip => None,
        });
        let counted = Counted(model);
        let prompt = counted.tokens(&sample.prompt, AddSpecial::Auto)?;
        let mut reader = Reader::new(&mut context);
        for part in prompt.chunks(BATCH) {
            reader.read(part)?;
        }
        let after_prompt = reader.last.clone();

        // The right answer, token by token; then it is taken back, and the model's own is made.
        let right = format!(" {}", sample.answers.join(", "));
        let right = counted.tokens(&right, AddSpecial::No)?;
        let mut log_probs = Vec::new();
        for token in &right {
            log_probs.push(log_prob(&reader.last, *token) as f32);
            reader.read(std::slice::from_ref(token))?;
        }
        reader.back_to(prompt.len() as i32, after_prompt)?;
        let answer = reader.generate(model, answer_tokens(sample.task) as usize)?;
        let digest = reader.digest.0;
        Ok(Said {
            score: sample.score(&answer),
            answer,
            log_probs,
            digest,
            tiles_tail: context.residency().totals().tiles_tail,
        })
    }
}

/// Reads tokens into a sequence, and digests the logits after each part.
pub(crate) struct Reader<'a, 'model> {
    context: &'a mut Context<'model>,
    pub(crate) last: Vec<f32>,
    digest: Digest,
}

impl<'a, 'model> Reader<'a, 'model> {
    pub(crate) fn new(context: &'a mut Context<'model>) -> Self {
        Self {
            context,
            last: Vec::new(),
            digest: Digest::default(),
        }
    }

    pub(crate) fn read(&mut self, tokens: &[Token]) -> Result<(), GateError> {
        self.context
            .append(0, tokens)
            .map_err(rolling_kv::Error::from)?;
        let logits = self
            .context
            .last_logits()
            .map_err(rolling_kv::Error::from)?;
        self.last = logits.to_vec();
        self.digest.add(&self.last);
        Ok(())
    }

    pub(crate) fn back_to(&mut self, position: i32, logits: Vec<f32>) -> Result<(), GateError> {
        self.context
            .memory()
            .remove(0, position..)
            .map_err(rolling_kv::Error::from)?;
        self.last = logits;
        Ok(())
    }

    /// The most probable tokens, up to an end of text or of a line.
    pub(crate) fn generate(&mut self, model: &Model, most: usize) -> Result<String, GateError> {
        let vocab = model.vocab();
        let mut tokens = Vec::new();
        let mut text = String::new();
        while tokens.len() < most {
            let token = Token(best(&self.last) as i32);
            if vocab.is_end(token) {
                break;
            }
            tokens.push(token);
            let bytes = vocab
                .detokenize(&tokens, RenderSpecial::No)
                .map_err(rolling_kv::Error::from)?;
            text = String::from_utf8_lossy(&bytes).into_owned();
            if text.trim_start().contains('\n') {
                break;
            }
            self.read(&[token])?;
        }
        Ok(text.trim().to_owned())
    }
}

fn best(logits: &[f32]) -> usize {
    (0..logits.len())
        .max_by(|&i, &j| logits[i].total_cmp(&logits[j]).then(j.cmp(&i)))
        .unwrap_or(0)
}

/// Natural logarithm of a token's probability, in double precision.
pub(crate) fn log_prob(logits: &[f32], token: Token) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits
        .iter()
        .map(|logit| (f64::from(*logit) - most).exp())
        .sum();
    logits
        .get(token.0 as usize)
        .map_or(f64::NEG_INFINITY, |logit| {
            f64::from(*logit) - most - sum.ln()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one() {
        let logits = [1.0, -2.0, 3.5, 0.0];
        let sum: f64 = (0..4)
            .map(|token| log_prob(&logits, Token(token)).exp())
            .sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert_eq!(best(&logits), 2);
        assert_eq!(log_prob(&logits, Token(9)), f64::NEG_INFINITY);
    }

    #[test]
    fn spots_are_places_in_the_text() {
        assert_eq!(Spot::Window.place(4000, 1000), Place::Token(500));
        assert_eq!(Spot::Tail.place(4000, 1000), Place::Token(2500));
        assert_eq!(Spot::Border.place(4000, 1000), Place::Astride(1000));
        assert_eq!(Spot::Depth(25.0).name(), "25%");
    }
}
