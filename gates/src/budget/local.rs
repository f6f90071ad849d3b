//! The lossy lever: layers that see the first and the newest tokens only, put to the test set by set.

use rolling_kv::{
    AddSpecial, Context, ContextParams, LocalLayers, Model, Order, Residency, RollingKv,
};
use serde::Serialize;

use super::search::largest;
use crate::error::GateError;
use crate::metrics::Comparison;
use crate::niah::{Counted, Reader, Spot, answer_tokens, log_prob};
use crate::profile::Profile;
use crate::ruler::{Sample, Task};

/// Cells of a tile.
const TILE: u32 = 128;
/// Tokens that are read at once; after each part logits are compared. A local layer keeps rows for as many.
const PART: u32 = 64;

/// The lossy lever.
#[derive(Debug, Clone)]
pub struct LocalLever {
    /// Newest tokens that a local layer sees, and the first ones.
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
    /// What a set of layers may lose.
    pub limits: LocalLimits,
}

/// What a set of layers may lose before it is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LocalLimits {
    /// Mean score of the whole cache below which the model is too weak to tell anything.
    pub score_least: f64,
    /// Score that a question may lose, from 0 to 1.
    pub score_lost: f64,
    /// Nats that the right answer's log-probability may lose, mean over the questions.
    pub nats_lost: f64,
    /// Mean divergence of the next token's distribution, in nats.
    pub kld_mean: f64,
}

/// How far a layer looks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
    /// The layers.
    pub layers: Vec<u32>,
    /// Mean score with the whole cache, and with these layers local.
    pub score_whole: f64,
    /// Mean score with these layers local.
    pub score_local: f64,
    /// The most that one question lost.
    pub score_lost: f64,
    /// Nats that the right answer's log-probability lost, mean over the questions.
    pub nats_lost: f64,
    /// Mean divergence of the next token's distribution, in nats.
    pub kld_mean: f64,
    /// K and V of these layers in device memory, in bytes, and what they take when they are whole.
    pub local_bytes: u64,
    /// What they take when they are whole.
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

/// What was heard of one question.
struct Heard {
    score: f64,
    log_prob: f64,
    logits: Vec<f32>,
    residency: Residency,
}

impl LocalLever {
    /// Orders the layers, and tries sets of them.
    ///
    /// # Errors
    /// When a question cannot be made, a context is refused, or the model cannot do the tasks with a whole cache.
    pub fn run(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<LocalReport, GateError> {
        let n_ctx = self.n_ctx();
        if self.first + self.cells >= self.length {
            return Err(GateError::NothingLocal {
                cells: self.first + self.cells,
                length: self.length,
            });
        }
        let order = self.order(model, |done| progress("looking where layers look", done))?;
        let samples = self.samples(model)?;
        let mut whole = Vec::new();
        for (at, sample) in samples.iter().enumerate() {
            let resident = RollingKv::resident();
            whole.push(self.listen(model, sample, n_ctx, resident)?);
            progress(
                "asking the whole cache",
                (at + 1) as f64 / samples.len() as f64,
            );
        }
        let score = mean(whole.iter().map(|heard| heard.score));
        if score < self.limits.score_least {
            return Err(GateError::TooWeak {
                found: format!("mean score {score:.2}"),
                least: self.limits.score_least,
            });
        }

        let mut trials: Vec<LocalTrial> = Vec::new();
        let most = order.len().saturating_sub(1);
        let expected = 2.0 * f64::from(usize::BITS - most.leading_zeros()) + 1.0;
        let found = largest(most, |count| {
            progress("trying layers", (trials.len() as f64 / expected).min(1.0));
            let layers: Vec<u32> = order[..count].iter().map(|one| one.layer).collect();
            let trial = self.trial(model, &samples, &whole, layers)?;
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
        (self.length + answer.unwrap_or(0)).next_multiple_of(256)
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

    fn samples(&self, model: &Model) -> Result<Vec<Sample>, GateError> {
        let window = self.window() as usize;
        let mut samples = Vec::new();
        for &task in &self.tasks {
            for &spot in &self.spots {
                let place = spot.place(self.length as usize, window);
                let length = self.length as usize;
                samples.push(Sample::make(
                    task,
                    length,
                    place,
                    self.seed,
                    &self.essay,
                    &Counted(model),
                )?);
            }
        }
        Ok(samples)
    }

    fn window(&self) -> u32 {
        let cells = u64::from(self.n_ctx()) * u64::from(self.window_percent) / 100;
        cells as u32 / TILE * TILE
    }

    fn listen(
        &self,
        model: &Model,
        sample: &Sample,
        n_ctx: u32,
        spill: RollingKv,
    ) -> Result<Heard, GateError> {
        let params = ContextParams::new(n_ctx)
            .n_batch(PART)
            .n_ubatch(PART)
            .threads(self.threads)
            .rolling_kv(spill.order(Order::Tiled).tile_cells(TILE));
        let mut context: Context<'_> = model.context(&params).map_err(rolling_kv::Error::from)?;
        let counted = Counted(model);
        let prompt = counted.tokens(&sample.prompt, AddSpecial::Auto)?;
        let mut reader = Reader::new(&mut context);
        let mut logits = Vec::new();
        for part in prompt.chunks(PART as usize) {
            reader.read(part)?;
            logits.extend_from_slice(&reader.last);
        }
        let after_prompt = reader.last.clone();
        let right = format!(" {}", sample.answers.join(", "));
        let mut sum = 0.0;
        let mut back = prompt.len();
        for token in counted.tokens(&right, AddSpecial::No)? {
            sum += log_prob(&reader.last, token);
            reader.read(&[token])?;
            logits.extend_from_slice(&reader.last);
            back += 1;
            // No more than a batch can be taken back.
            if back - prompt.len() == PART as usize {
                break;
            }
        }
        reader.back_to(prompt.len() as i32, after_prompt)?;
        let answer = reader.generate(model, answer_tokens(sample.task) as usize)?;
        Ok(Heard {
            score: sample.score(&answer),
            log_prob: sum,
            logits,
            residency: context.residency(),
        })
    }

    fn trial(
        &self,
        model: &Model,
        samples: &[Sample],
        whole: &[Heard],
        layers: Vec<u32>,
    ) -> Result<LocalTrial, GateError> {
        let n_vocab = model.vocab().len() as usize;
        let mut heard = Vec::new();
        let mut divergences = Vec::new();
        for (sample, whole) in samples.iter().zip(whole) {
            let spill =
                RollingKv::window_cells(self.window()).local_layers(self.local(layers.clone()));
            let found = self.listen(model, sample, self.n_ctx(), spill)?;
            divergences.push(Comparison::new(&whole.logits, &found.logits, n_vocab).kld_mean);
            heard.push(found);
        }
        let residency = &heard.last().ok_or(GateError::NotEngaged)?.residency;
        let local = || residency.layers.iter().filter(|one| one.local.is_some());
        let tails = residency.layers.iter().filter(|one| one.host_bytes > 0);
        if local().count() != layers.len()
            || tails.map(|one| one.counters.tiles_tail).sum::<u64>() == 0
        {
            return Err(GateError::NotEngaged);
        }
        let pairs = || whole.iter().zip(&heard);
        let mut trial = LocalTrial {
            score_whole: mean(whole.iter().map(|heard| heard.score)),
            score_local: mean(heard.iter().map(|heard| heard.score)),
            score_lost: pairs()
                .map(|(whole, local)| whole.score - local.score)
                .fold(0.0, f64::max),
            nats_lost: mean(pairs().map(|(whole, local)| whole.log_prob - local.log_prob)),
            kld_mean: mean(divergences.into_iter()),
            local_bytes: local().map(|one| one.device_bytes + one.host_bytes).sum(),
            whole_bytes: local()
                .map(|one| one.device_bytes / u64::from(one.window_cells) * u64::from(one.kv_size))
                .sum(),
            tiles_tail: local().map(|one| one.counters.tiles_tail).sum(),
            layers,
            rejected: Vec::new(),
        };
        trial.rejected = self.limits.exceeded(&trial);
        Ok(trial)
    }
}

impl LocalLimits {
    /// What a trial loses beyond the limits, in words.
    fn exceeded(&self, trial: &LocalTrial) -> Vec<String> {
        let checks = [
            ("score of a question", trial.score_lost, self.score_lost, ""),
            (
                "log-probability of the answer",
                trial.nats_lost,
                self.nats_lost,
                " nats",
            ),
            (
                "next token's distribution",
                trial.kld_mean,
                self.kld_mean,
                " nats of divergence",
            ),
        ];
        checks
            .into_iter()
            .filter(|(_, found, limit, _)| found > limit)
            .map(|(what, found, limit, unit)| {
                format!("{what}: {found:.3}{unit} lost, where {limit} is the limit")
            })
            .collect()
    }
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
    pub(super) fn for_tests(rejected: Vec<String>, tiles_tail: u64) -> Self {
        Self {
            layers: vec![0],
            score_whole: 1.0,
            score_local: 1.0,
            score_lost: 0.0,
            nats_lost: 0.0,
            kld_mean: 0.0,
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

    #[test]
    fn what_is_lost_beyond_a_limit_is_named_with_its_numbers() {
        let limits = LocalLimits {
            score_least: 0.5,
            score_lost: 0.0,
            nats_lost: 0.5,
            kld_mean: 0.02,
        };
        let mut trial = LocalTrial::for_tests(Vec::new(), 0);
        assert!(limits.exceeded(&trial).is_empty());
        trial.nats_lost = -3.0;
        assert!(limits.exceeded(&trial).is_empty(), "a gain is no loss");
        trial.score_lost = 1.0;
        trial.nats_lost = 0.75;
        trial.kld_mean = 0.03;
        let said = limits.exceeded(&trial).join("\n");
        for number in ["1.000", "0.750", "0.030"] {
            assert!(said.contains(number), "{said}");
        }
    }
}
