//! The lossy lever: layers that see the first and the newest tokens only, put to the test set by set.

use rolling_kv::{LocalLayers, Model, RollingKv};
use serde::{Deserialize, Serialize};

use super::listen::{Heard, TILE, listen};
use super::search::largest;
use crate::budget_report::BudgetThresholds;
use crate::error::GateError;
use crate::metrics::Comparison;
use crate::niah::{Counted, Spot, answer_tokens};
use crate::profile::Profile;
use crate::ruler::{Sample, Task};
use crate::store::Store;
use crate::subject;
use crate::threshold::{Check, Threshold};

/// The lossy lever.
#[derive(Debug, Clone)]
pub struct LocalLever {
    /// Newest tokens that a local layer sees.
    pub cells: u32,
    /// Tokens at the beginning that it sees.
    pub first: u32,
    /// Tokens of a question, exactly.
    pub length: u32,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the needle stands.
    pub spots: Vec<Spot>,
    /// Cells of the other layers in the window, in percent of the context.
    pub window_percent: u32,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the questions.
    pub seed: u64,
    /// The text around the needles.
    pub essay: String,
}

/// How far a layer looks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerReach {
    /// The layer.
    pub layer: u32,
    /// The largest share that one of its heads has beyond the newest and the first tokens.
    pub reach: f64,
}

/// What became of one set of layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LocalTrial {
    /// The layers, the most local one first.
    pub layers: Vec<u32>,
    /// Mean score with the whole cache.
    pub score_whole: f64,
    /// Mean score with these layers local.
    pub score_local: f64,
    /// The most that one question lost.
    pub score_lost: f64,
    /// Nats that the right answer's log-probability lost, mean over the questions.
    pub nats_lost: f64,
    /// Mean divergence of the next token's distribution, in nats.
    pub kld_mean: f64,
    /// K and V of these layers in device memory, in bytes.
    pub local_bytes: u64,
    /// What they take when they keep every token.
    pub whole_bytes: u64,
    /// Tiles that these layers read from a tail: none.
    pub tiles_tail: u64,
    /// Why it was rejected; empty when it was accepted.
    pub rejected: Vec<String>,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LocalReport {
    /// Every layer that could be local, the most local one first.
    pub order: Vec<LayerReach>,
    /// The sets that were tried, in the order in which they were.
    pub trials: Vec<LocalTrial>,
    /// The largest set that was accepted.
    pub accepted: Option<LocalLayers>,
}

/// One question, and its name in what is kept.
struct Question {
    name: String,
    sample: Sample,
}

/// What was heard of each question, beside its logits.
type All = Vec<(Vec<f32>, Heard)>;

impl LocalLever {
    /// What cannot be asked is refused before anything is measured.
    pub(super) fn check(&self, model: &Model) -> Result<(), GateError> {
        if self.first.saturating_add(self.cells) >= self.length {
            return Err(GateError::NothingLocal {
                cells: self.first.saturating_add(self.cells),
                length: self.length,
            });
        }
        subject::fits(
            model,
            "a question with its answer",
            self.n_ctx(),
            "--length",
        )
    }

    /// Orders the layers, and tries sets of them.
    ///
    /// # Errors
    /// When a question cannot be made, a context is refused, or the model cannot do the tasks with a whole cache.
    pub(super) fn run(
        &self,
        model: &Model,
        thresholds: &BudgetThresholds,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<LocalReport, GateError> {
        let order: Vec<LayerReach> = store.get("local, order", || {
            self.order(model, |done| progress("looking where layers look", done))
        })?;
        let questions = self.questions(model)?;
        let whole = self.ask(model, &questions, &[], store, |done| {
            progress("asking the whole cache", done);
        })?;
        let score = mean(whole.iter().map(|(_, heard)| heard.score));
        let least = thresholds.score_least.value;
        if score < least {
            let found = format!("mean score {score:.2}");
            return Err(GateError::TooWeak { found, least });
        }

        let mut trials: Vec<LocalTrial> = Vec::new();
        let most = order.len().saturating_sub(1);
        let expected = 2.0 * f64::from(usize::BITS - most.leading_zeros()) + 1.0;
        let found = largest(most, |count| {
            let done = trials.len() as f64;
            let layers: Vec<u32> = order[..count].iter().map(|one| one.layer).collect();
            let local = self.ask(model, &questions, &layers, store, |part| {
                progress("trying layers", ((done + part) / expected).min(1.0));
            })?;
            let n_vocab = model.vocab().len() as usize;
            let trial = judge(layers, &whole, &local, n_vocab, thresholds)?;
            let accepted = trial.rejected.is_empty();
            trials.push(trial);
            Ok::<bool, GateError>(accepted)
        })?;
        let accepted = found.map(|count| {
            let mut layers: Vec<u32> = order[..count].iter().map(|one| one.layer).collect();
            layers.sort_unstable();
            self.local(layers).for_model(model)
        });
        Ok(LocalReport {
            order,
            trials,
            accepted,
        })
    }

    fn n_ctx(&self) -> u32 {
        let answer = self.tasks.iter().map(|&task| answer_tokens(task)).max();
        let all = self.length.saturating_add(answer.unwrap_or(0));
        all.checked_next_multiple_of(256).unwrap_or(u32::MAX)
    }

    fn local(&self, layers: Vec<u32>) -> LocalLayers {
        LocalLayers::new(layers, self.cells).first(self.first)
    }

    /// The layers that keep every token, by how far the farthest of their heads looks.
    fn order(
        &self,
        model: &Model,
        mut progress: impl FnMut(f64),
    ) -> Result<Vec<LayerReach>, GateError> {
        let profile = Profile {
            length: self.length,
            depth: 0.0,
            threads: self.threads,
            seed: self.seed,
            essay: self.essay.clone(),
        };
        let profile = profile.run(model, |_, done| progress(done))?;
        let mut order: Vec<LayerReach> = super::splittable(model)?
            .into_iter()
            .map(|layer| LayerReach {
                layer,
                reach: profile.reach(layer, self.cells),
            })
            .collect();
        order.sort_by(|left, right| left.reach.total_cmp(&right.reach));
        Ok(order)
    }

    fn questions(&self, model: &Model) -> Result<Vec<Question>, GateError> {
        let (length, window) = (self.length as usize, self.window() as usize);
        let mut questions = Vec::new();
        for &task in &self.tasks {
            for &spot in &self.spots {
                let place = spot.place(length, window);
                let counted = Counted(model);
                let sample = Sample::make(task, length, place, self.seed, &self.essay, &counted)?;
                let name = format!("{} {}", task.name(), spot.name());
                questions.push(Question { name, sample });
            }
        }
        Ok(questions)
    }

    fn window(&self) -> u32 {
        let cells = u64::from(self.n_ctx()) * u64::from(self.window_percent) / 100;
        cells as u32 / TILE * TILE
    }

    /// Asks every question with these layers local; with none, with every cell on the device.
    fn ask(
        &self,
        model: &Model,
        questions: &[Question],
        layers: &[u32],
        store: &mut Store,
        mut progress: impl FnMut(f64),
    ) -> Result<All, GateError> {
        let mut all = Vec::new();
        for question in questions {
            let name = format!("local, {} layers, {}", layers.len(), question.name);
            let spill = if layers.is_empty() {
                RollingKv::resident()
            } else {
                RollingKv::window_cells(self.window()).local_layers(self.local(layers.to_vec()))
            };
            all.push(store.floats(&name, || {
                listen(model, &question.sample, self.n_ctx(), self.threads, spill)
            })?);
            progress(all.len() as f64 / questions.len() as f64);
        }
        Ok(all)
    }
}

/// What these layers lose, and whether that is too much.
fn judge(
    layers: Vec<u32>,
    whole: &All,
    local: &All,
    n_vocab: usize,
    thresholds: &BudgetThresholds,
) -> Result<LocalTrial, GateError> {
    let last = local.last().ok_or(GateError::NotEngaged)?.1;
    if last.local_layers != layers.len() || last.tiles_tail == 0 {
        return Err(GateError::NotEngaged);
    }
    let pairs = || whole.iter().zip(local);
    let lost =
        |of: fn(&Heard) -> f64| pairs().map(move |(whole, local)| of(&whole.1) - of(&local.1));
    let mut trial = LocalTrial {
        layers,
        score_whole: mean(whole.iter().map(|(_, heard)| heard.score)),
        score_local: mean(local.iter().map(|(_, heard)| heard.score)),
        score_lost: lost(|heard| heard.score).fold(0.0, f64::max),
        nats_lost: mean(lost(|heard| heard.log_prob)),
        kld_mean: mean(
            pairs().map(|(whole, local)| Comparison::new(&whole.0, &local.0, n_vocab).kld_mean),
        ),
        local_bytes: last.local_bytes,
        whole_bytes: last.whole_bytes,
        tiles_tail: local.iter().map(|(_, heard)| heard.local_tiles_tail).sum(),
        rejected: Vec::new(),
    };
    trial.rejected = exceeded(&trial, thresholds);
    Ok(trial)
}

/// What a trial loses beyond the thresholds, in words.
fn exceeded(trial: &LocalTrial, thresholds: &BudgetThresholds) -> Vec<String> {
    let of =
        |name, threshold: &Threshold, what, found| Check::at_most(name, threshold, what, found);
    let checks = [
        of(
            "score-lost",
            &thresholds.score_lost,
            "score that a question loses",
            trial.score_lost,
        ),
        of(
            "nats-lost",
            &thresholds.nats_lost,
            "nats that the right answer loses",
            trial.nats_lost,
        ),
        of(
            "kld-mean",
            &thresholds.kld_mean,
            "mean divergence in nats",
            trial.kld_mean,
        ),
    ];
    let beyond = checks.into_iter().filter(|check| !check.holds);
    beyond
        .map(|check| {
            let (found, limit) = check.numbers();
            format!("{} {found}, where {limit} is the most", check.what)
        })
        .collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count.max(1))
}

#[cfg(test)]
impl LocalTrial {
    pub(crate) fn for_tests(count: u32, rejected: Vec<String>, tiles_tail: u64) -> Self {
        Self {
            layers: (0..count).collect(),
            score_whole: 1.0,
            score_local: 1.0,
            score_lost: 0.0,
            nats_lost: 0.0,
            kld_mean: 0.001,
            local_bytes: 1,
            whole_bytes: 2,
            tiles_tail,
            rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Thresholds;

    #[test]
    fn what_is_lost_beyond_a_limit_is_named_with_its_numbers() {
        let thresholds = BudgetThresholds::built_in().unwrap();
        let mut trial = LocalTrial::for_tests(1, Vec::new(), 0);
        assert!(exceeded(&trial, &thresholds).is_empty());
        trial.nats_lost = -3.0;
        assert!(
            exceeded(&trial, &thresholds).is_empty(),
            "a gain is no loss"
        );
        trial.score_lost = 1.0;
        trial.nats_lost = 0.75;
        trial.kld_mean = f64::NAN;
        let said = exceeded(&trial, &thresholds).join("\n");
        for word in ["loses 1,", "0.75", "divergence"] {
            assert!(said.contains(word), "{said}");
        }
    }
}
