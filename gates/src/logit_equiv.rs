use rolling_kv::{
    AddSpecial, Batch, ContextParams, Fault, KvType, Model, Order, Output, ParseSpecial, Part,
    Residency, RollingKv, Row, TailEngine, Token,
};
use serde::{Deserialize, Serialize};

use crate::engaged;
use crate::error::GateError;
use crate::logit_equiv_report::{LogitEquivReport, LogitEquivThresholds, OfF16, SpilledRun};
use crate::metrics::{Comparison, surprise};
use crate::noise_text::noise_text;
use crate::store::Store;
use crate::subject;
use crate::threshold::Judged;

/// A fault that must turn the gate red.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Inject {
    /// One byte of one cell of the tail is changed.
    Flip,
    /// The last tile of the tail is left out of the merge.
    Drop,
    /// The first tile of the tail is read as it was before it was written.
    Stale,
}

/// Logits of a spilled cache against those of a resident one and of llama.cpp's own attention.
#[derive(Debug, Clone)]
pub struct LogitEquiv {
    /// Tokens of context; the text fills it.
    pub n_ctx: u32,
    /// Cells of each layer in the window, one run each.
    pub windows: Vec<u32>,
    /// Cells of a tile; `None` for the default.
    pub tile_cells: Option<u32>,
    /// Who attends to the tail in steps of few tokens.
    pub engine: TailEngine,
    /// How K and V are stored.
    pub kv_type: KvType,
    /// How they are stored in host memory; `None`: the same.
    pub tail_type: Option<KvType>,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the built-in text.
    pub seed: u64,
    /// The text; `None` for the built-in one.
    pub text: Option<String>,
    /// A fault to put into the spilled run.
    pub inject: Option<Inject>,
    /// By which numbers it is judged.
    pub thresholds: LogitEquivThresholds,
}

/// Tokens decoded one by one after the prompt.
pub(crate) const DECODED: usize = 24;
/// Positions of the prompt whose logits are compared, evenly spread.
const PROMPT_OUTPUTS: usize = 40;
/// Tokens of one batch.
const BATCH: usize = 512;
/// Tokens of a ubatch.
const UBATCH: u32 = 512;
/// Tokens of a ubatch of the second stock run: few enough that llama.cpp computes the prompt's attention as it does a decode
/// step's, in another order and with other intermediate precision.
const NOISE_UBATCH: u32 = 32;

/// One context through which the text goes.
struct Run {
    /// What its bar is called.
    bar: &'static str,
    /// What its results are called.
    key: String,
    spill: Option<RollingKv>,
    threads: u32,
    n_ubatch: u32,
    kv_type: KvType,
    inject: Option<Inject>,
}

/// Where a run's cache lay.
#[derive(Serialize, Deserialize)]
struct Lay {
    window_cells: u32,
    residency: String,
    tiles_tail: u64,
    tiles_host: u64,
}

impl From<Residency> for Lay {
    fn from(residency: Residency) -> Self {
        let windows = residency.layers.iter().map(|layer| layer.window_cells);
        Self {
            window_cells: windows.min().unwrap_or(0),
            residency: residency.to_string(),
            tiles_tail: residency.totals().tiles_tail,
            tiles_host: residency.totals().tiles_host,
        }
    }
}

impl LogitEquiv {
    /// Runs the contexts one after the other. `progress` is told the name of each run and the share of it that is done; a run whose
    /// logits are in `store` is not made again.
    ///
    /// # Errors
    /// When a run is not possible, or when it would prove nothing.
    pub fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<LogitEquivReport, GateError> {
        subject::check(model)?;
        let tokens = self.check(model)?;
        let n_vocab = model.vocab().len() as usize;
        let mut logits = |run: Run| {
            store.floats(&run.key, || {
                self.evaluate(model, &tokens, &run, |done| progress(run.bar, done))
            })
        };

        let stock = logits(self.stock("stock", "stock", self.threads, UBATCH))?.0;
        can_be_compared(&stock, n_vocab)?;
        let other_threads = if self.threads > 1 { 1 } else { 2 };
        let again = self.stock("stock again", "stock-again", other_threads, NOISE_UBATCH);
        let noise = logits(again)?.0;
        let resident = logits(self.tiled("resident", "resident".into(), RollingKv::resident()))?.0;
        let f16 = if self.is_quantised() {
            let mut run = self.stock("stock with f16", "stock-f16", self.threads, UBATCH);
            run.kv_type = KvType::F16;
            Some(logits(run)?.0)
        } else {
            None
        };
        let mut spilled = Vec::new();
        for &cells in &self.windows {
            let mut run = self.spilled(cells);
            run.inject = self.inject;
            let (logits, lay) = logits(run)?;
            engaged::check(self.engine, lay.tiles_tail, lay.tiles_host)?;
            spilled.push(SpilledRun {
                window_cells: lay.window_cells,
                vs_stock: Comparison::new(&stock, &logits, n_vocab),
                vs_resident: Comparison::new(&resident, &logits, n_vocab),
                vs_f16: f16
                    .as_ref()
                    .map(|f16| Comparison::new(f16, &logits, n_vocab)),
                residency: lay.residency,
                tiles_tail: lay.tiles_tail,
                tiles_host: lay.tiles_host,
            });
        }
        let positions = outputs(tokens.len());
        let next: Vec<Option<Token>> = positions
            .iter()
            .map(|at| tokens.get(at + 1).copied())
            .collect();
        let found = LogitEquivReport {
            prompt_tokens: tokens.len() - DECODED,
            decoded_tokens: DECODED,
            surprise_nats: surprise(&stock, n_vocab, &next),
            guess_nats: (n_vocab as f64).ln(),
            engine: self.engine.name(),
            tail_type: self.tail_type.map(|kind| kind.to_string()),
            stock_vs_stock: Comparison::new(&stock, &noise, n_vocab),
            resident_vs_stock: Comparison::new(&stock, &resident, n_vocab),
            of_f16: f16.as_ref().map(|f16| OfF16 {
                stock: Comparison::new(f16, &stock, n_vocab),
                resident: Comparison::new(f16, &resident, n_vocab),
            }),
            spilled,
            positions,
            judged: Judged::default(),
        };
        Ok(found.judge(&self.thresholds))
    }

    fn stock(&self, bar: &'static str, key: &str, threads: u32, n_ubatch: u32) -> Run {
        Run {
            bar,
            key: key.into(),
            spill: None,
            threads,
            n_ubatch,
            kv_type: self.judge_type(),
            inject: None,
        }
    }

    /// What the caches have that a spilled one is judged by: with a tail of another type, all of theirs is of that type.
    fn judge_type(&self) -> KvType {
        self.tail_type.unwrap_or(self.kv_type)
    }

    fn is_quantised(&self) -> bool {
        self.judge_type().is_quantised()
    }

    fn spilled(&self, cells: u32) -> Run {
        let spill = RollingKv::window_cells(cells).tail_engine(self.engine);
        let spill = match self.tail_type {
            Some(kind) => spill.tail_type_k(kind).tail_type_v(kind),
            None => spill,
        };
        let mut run = self.tiled("spilled", format!("window-{cells}"), spill);
        run.kv_type = self.kv_type;
        run
    }

    fn tiled(&self, bar: &'static str, key: String, spill: RollingKv) -> Run {
        Run {
            bar,
            key,
            spill: Some(spill.order(Order::Tiled)),
            threads: self.threads,
            n_ubatch: UBATCH,
            kv_type: self.judge_type(),
            inject: None,
        }
    }

    /// What is refused is refused now, and not when the first runs are done.
    fn check(&self, model: &Model) -> Result<Vec<Token>, GateError> {
        subject::fits(model, "the text", self.n_ctx, "--ctx")?;
        if let Some(&window_cells) = self.windows.iter().find(|&&cells| cells >= self.n_ctx) {
            return Err(GateError::NothingSpills {
                window_cells,
                n_ctx: self.n_ctx,
            });
        }
        let tokens = self.tokens(model)?;
        for &cells in &self.windows {
            drop(model.context(&self.params(&self.spilled(cells)))?);
        }
        Ok(tokens)
    }

    fn params(&self, run: &Run) -> ContextParams {
        let params = ContextParams::new(self.n_ctx)
            .threads(run.threads)
            .n_ubatch(run.n_ubatch)
            .cache_types(run.kv_type, run.kv_type);
        match (run.spill.clone(), self.tile_cells) {
            (Some(spill), Some(cells)) => params.rolling_kv(spill.tile_cells(cells)),
            (Some(spill), None) => params.rolling_kv(spill),
            (None, _) => params,
        }
    }

    fn tokens(&self, model: &Model) -> Result<Vec<Token>, GateError> {
        let needed = self.n_ctx as usize;
        let least = (DECODED + PROMPT_OUTPUTS + 1) as u32;
        if self.n_ctx < least {
            return Err(GateError::ContextTooSmall {
                n_ctx: self.n_ctx,
                least,
            });
        }
        let text = self
            .text
            .clone()
            .unwrap_or_else(|| noise_text(self.seed, needed));
        let mut tokens = model
            .vocab()
            .tokenize(&text, AddSpecial::Auto, ParseSpecial::No)?;
        if tokens.len() < needed {
            return Err(GateError::TextTooShort {
                tokens: tokens.len(),
                needed,
            });
        }
        tokens.truncate(needed);
        Ok(tokens)
    }

    fn evaluate(
        &self,
        model: &Model,
        tokens: &[Token],
        run: &Run,
        mut progress: impl FnMut(f64),
    ) -> Result<(Vec<f32>, Lay), GateError> {
        let mut context = model.context(&self.params(run))?;
        let _fault = match run.inject {
            Some(Inject::Drop) => Some(Fault::DropTile.inject()),
            Some(Inject::Stale) => Some(Fault::StaleTile.inject()),
            Some(Inject::Flip) | None => None,
        };

        let prompt = tokens.len() - DECODED;
        let asked = outputs(tokens.len());
        let mut logits = Vec::new();
        for start in (0..prompt).step_by(BATCH) {
            let mut batch = Batch::with_capacity(BATCH);
            let end = (start + BATCH).min(prompt);
            for (at, token) in tokens.iter().enumerate().take(end).skip(start) {
                let output = match asked.binary_search(&at) {
                    Ok(_) => Output::Yes,
                    Err(_) => Output::No,
                };
                batch.push(*token, at as i32, &[0], output);
            }
            context.decode(&batch)?;
            for at in asked.iter().filter(|at| (start..end).contains(at)) {
                logits.extend_from_slice(context.logits(at - start)?.values());
            }
            progress(end as f64 / tokens.len() as f64);
        }
        if run.inject == Some(Inject::Flip) {
            flip_a_byte(&mut context, prompt as u32 - 1)?;
        }
        for (at, token) in tokens.iter().enumerate().skip(prompt) {
            context.append(0, std::slice::from_ref(token))?;
            logits.extend_from_slice(context.last_logits()?.values());
            progress((at + 1) as f64 / tokens.len() as f64);
        }
        Ok((logits, context.residency().into()))
    }
}

/// The positions whose logits are compared: some of the prompt, evenly spread, its last one, and every decoded one.
fn outputs(tokens: usize) -> Vec<usize> {
    let prompt = tokens - DECODED;
    let step = (prompt / PROMPT_OUTPUTS).max(1);
    (0..tokens)
        .filter(|at| at % step == step - 1 || at + 1 >= prompt)
        .collect()
}

/// Logits that are no numbers, or the same whatever was read, are equal to anything.
fn can_be_compared(logits: &[f32], n_vocab: usize) -> Result<(), GateError> {
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Err(GateError::Mute {
            found: "are not all numbers",
        });
    }
    let mut rows = logits.chunks_exact(n_vocab);
    let first = rows.next();
    if rows.all(|row| Some(row) == first) {
        return Err(GateError::Mute {
            found: "are the same at every position",
        });
    }
    Ok(())
}

/// Changes one byte of the key of the last cell of the prompt, which lies in the tail, in the first layer that has one.
fn flip_a_byte(context: &mut rolling_kv::Context<'_>, cell: u32) -> Result<(), GateError> {
    let layers = context.residency().layers;
    let flipped = layers
        .iter()
        .position(|layer| layer.host_bytes > 0)
        .and_then(|entry| {
            let (_, mut row) = context.read_cell(entry, Row::K, 0, cell)?;
            row[1] ^= 0x10;
            context.overwrite_cell(entry, Row::K, 0, cell, &row)
        });
    match flipped {
        Some(Part::Tail) => Ok(()),
        Some(Part::Window) | None => Err(GateError::NotInjected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_spread_over_the_prompt_and_hold_every_decoded_one() {
        for tokens in [65, 256, 1000, 6144] {
            let found = outputs(tokens);
            assert!(found.is_sorted() && found.len() >= 40 + DECODED, "{tokens}");
            assert_eq!(found.last(), Some(&(tokens - 1)));
            let decoded = found.iter().filter(|at| **at >= tokens - DECODED);
            assert_eq!(decoded.count(), DECODED);
            assert!(found.contains(&(tokens - DECODED - 1)), "the prompt's last");
        }
    }

    #[test]
    fn logits_that_are_equal_to_anything_are_refused() {
        assert!(can_be_compared(&[1.0, 2.0, 1.0, 2.5], 2).is_ok());
        for wrong in [[1.0, 2.0, 1.0, 2.0], [1.0, f32::NAN, 1.0, 2.0]] {
            assert!(can_be_compared(&wrong, 2).is_err(), "{wrong:?}");
        }
    }
}
