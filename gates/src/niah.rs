//! Needles in a haystack, with the cache resident and spilled: both must say the same, word by word and bit by bit.

use rolling_kv::{
    AddSpecial, ContextParams, Fault, Model, Order, ParseSpecial, RollingKv, TailEngine, Token,
};
use serde::{Deserialize, Serialize};

use crate::engaged;
use crate::error::GateError;
use crate::logit_equiv::Inject;
use crate::metrics::log_prob;
use crate::niah_reader::Reader;
use crate::niah_report::{NiahReport, NiahThresholds, able};
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
    /// Who attends to the tail in steps of few tokens.
    pub engine: TailEngine,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the questions.
    pub seed: u64,
    /// Haystack of the tasks that want an essay.
    pub essay: String,
    /// A fault to put into the spilled runs.
    pub inject: Option<Inject>,
    /// By which numbers it is judged.
    pub thresholds: NiahThresholds,
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
    /// Of them, those that the host attended to for a device.
    pub tiles_host: u64,
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
            tiles_host: 0,
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

/// A question that is asked twice.
struct Question {
    length: u32,
    spot: Spot,
    window_cells: u32,
    n_ctx: u32,
    sample: Sample,
}

impl Question {
    /// RULER's name of the task.
    fn task(&self) -> &'static str {
        self.sample.task.name()
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.task(), self.length, self.spot.name())
    }

    fn asked(self, resident: Said, spilled: Said) -> Asked {
        Asked {
            task: self.task().into(),
            length: self.length,
            spot: self.spot.name(),
            window_cells: self.window_cells,
            n_ctx: self.n_ctx,
            wanted: self.sample.answers,
            resident,
            spilled,
        }
    }
}

/// Cells that a question and its answer take.
fn cells_of(task: Task, length: u32) -> u32 {
    length
        .saturating_add(answer_tokens(task))
        .next_multiple_of(256)
}

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
    /// Asks every question with a resident cache, and then, if the model can answer at all, with a spilled one. `progress` is told the
    /// share that is done; what `store` knows is not asked again.
    ///
    /// # Errors
    /// When a question cannot be made, a context is refused, the model cannot do any task, or nothing spilled.
    pub fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<NiahReport, GateError> {
        subject::check(model)?;
        let questions = self.questions(model)?;
        // Long questions take longer, by more than their length.
        let weight = |question: &Question| f64::from(question.length).powf(1.3);
        let total: f64 = questions.iter().map(weight).sum();
        let mut ask = |bar: &'static str, spilled: bool| -> Result<Vec<Said>, GateError> {
            let mut done = 0.0;
            let mut all = Vec::new();
            for question in &questions {
                let key = format!("{} {bar}", question.name());
                all.push(store.get(&key, || self.ask(model, question, spilled))?);
                done += weight(question);
                progress(bar, done / total);
            }
            Ok(all)
        };

        let resident = ask("resident", false)?;
        let scores = questions.iter().zip(&resident);
        let scores = scores.map(|(question, said)| (question.task(), said.score));
        able(&scores.collect::<Vec<_>>(), &self.thresholds)?;
        let spilled = ask("spilled", true)?;
        let answers = resident.into_iter().zip(spilled);
        let asked = questions
            .into_iter()
            .zip(answers)
            .map(|(question, (resident, spilled))| question.asked(resident, spilled));
        let engine = self.engine.name();
        Ok(NiahReport::judge(engine, asked.collect(), &self.thresholds))
    }

    /// Every question. What cannot be asked is refused before the first one is.
    fn questions(&self, model: &Model) -> Result<Vec<Question>, GateError> {
        let cells = self.cells();
        for &(task, length, _) in &cells {
            let asked = length.saturating_add(answer_tokens(task));
            let what = format!("a question of {length} tokens with its answer");
            subject::fits(model, &what, asked, "--lengths")?;
            let window = self.window(task, length);
            if window >= length {
                return Err(GateError::NothingSpills {
                    window_cells: window,
                    n_ctx: length,
                });
            }
        }
        let questions = cells
            .into_iter()
            .map(|(task, length, spot)| self.question(model, task, length, spot));
        questions.collect()
    }

    fn question(
        &self,
        model: &Model,
        task: Task,
        length: u32,
        spot: Spot,
    ) -> Result<Question, GateError> {
        let window_cells = self.window(task, length);
        let place = spot.place(length as usize, window_cells as usize);
        let seed = self.seed ^ u64::from(length) << 8;
        let counted = Counted(model);
        let sample = Sample::make(task, length as usize, place, seed, &self.essay, &counted)?;
        Ok(Question {
            length,
            spot,
            window_cells,
            n_ctx: cells_of(task, length),
            sample,
        })
    }

    fn window(&self, task: Task, length: u32) -> u32 {
        let n_ctx = u64::from(cells_of(task, length));
        (n_ctx * u64::from(self.window_percent) / 100) as u32 / TILE * TILE
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

    fn ask(&self, model: &Model, question: &Question, spilled: bool) -> Result<Said, GateError> {
        let resident = (RollingKv::resident(), None);
        let window = RollingKv::window_cells(question.window_cells).tail_engine(self.engine);
        let window = (window, self.inject);
        let (spill, inject) = if spilled { window } else { resident };
        let said = self.say(model, question, spill, inject)?;
        if spilled {
            engaged::check(self.engine, said.tiles_tail, said.tiles_host)?;
        }
        Ok(said)
    }

    fn say(
        &self,
        model: &Model,
        question: &Question,
        spill: RollingKv,
        inject: Option<Inject>,
    ) -> Result<Said, GateError> {
        let sample = &question.sample;
        let spill = spill.order(Order::Tiled).tile_cells(TILE);
        let params = ContextParams::new(question.n_ctx)
            .threads(self.threads)
            .rolling_kv(spill);
        let mut context = model.context(&params)?;
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
        let after_prompt = reader.last().to_vec();

        // The right answer, token by token; then it is taken back, and the model's own is made.
        let right = format!(" {}", sample.answers.join(", "));
        let right = counted.tokens(&right, AddSpecial::No)?;
        let mut log_probs = Vec::new();
        for token in &right {
            log_probs.push(log_prob(reader.last(), *token) as f32);
            reader.read(std::slice::from_ref(token))?;
        }
        reader.back_to(prompt.len() as i32, after_prompt)?;
        let answer = reader.generate(model, answer_tokens(sample.task) as usize)?;
        let digest = reader.digest();
        let totals = context.residency().totals();
        Ok(Said {
            score: sample.score(&answer),
            answer,
            log_probs,
            digest,
            tiles_tail: totals.tiles_tail,
            tiles_host: totals.tiles_host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_are_places_in_the_text() {
        assert_eq!(Spot::Window.place(4000, 1000), Place::Token(500));
        assert_eq!(Spot::Tail.place(4000, 1000), Place::Token(2500));
        assert_eq!(Spot::Border.place(4000, 1000), Place::Astride(1000));
        assert_eq!(Spot::Depth(25.0).name(), "25%");
    }
}
