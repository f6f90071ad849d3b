use rolling_kv::{
    AddSpecial, Batch, ContextParams, Fault, KvType, Model, Order, Output, ParseSpecial, Part,
    Residency, RollingKv, Row, Token,
};
use serde::Serialize;

use crate::error::GateError;
use crate::metrics::Comparison;
use crate::noise_text::noise_text;
use crate::subject;
use crate::verdict::Verdict;

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
    /// How K and V are stored.
    pub kv_type: KvType,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the built-in text.
    pub seed: u64,
    /// The text; `None` for the built-in one.
    pub text: Option<String>,
    /// A fault to put into the spilled run.
    pub inject: Option<Inject>,
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LogitEquivReport {
    /// Pass or fail.
    pub verdict: Verdict,
    /// Why, one line a threshold.
    pub reasons: Vec<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens decoded one by one.
    pub decoded_tokens: usize,
    /// Two runs of llama.cpp's own attention, with other thread counts and ubatches: the noise floor.
    pub stock_vs_stock: Comparison,
    /// The resident tiled run against llama.cpp's own attention.
    pub resident_vs_stock: Comparison,
    /// The spilled runs.
    pub spilled: Vec<SpilledRun>,
}

/// A run with a window.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SpilledRun {
    /// Cells of the window as it was made.
    pub window_cells: u32,
    /// Against llama.cpp's own attention.
    pub vs_stock: Comparison,
    /// Against the resident tiled run.
    pub vs_resident: Comparison,
    /// Where its cache lay and what its attention did, in words.
    pub residency: String,
    /// Tiles read from a tail.
    pub tiles_tail: u64,
}

/// Tokens decoded one by one after the prompt.
const DECODED: usize = 24;
/// Positions of the prompt whose logits are compared, evenly spread.
const PROMPT_OUTPUTS: usize = 40;
/// Tokens of one batch.
const BATCH: usize = 512;
/// How far above the noise floor a divergence may lie. The floor is itself a sample: on the same texts its mean was seen
/// between 0.95 and 1.05 of ours.
const FLOOR_FACTOR: f64 = 2.0;
/// Tokens of a ubatch of the second stock run: few enough that llama.cpp computes the prompt's attention as it does a decode
/// step's, in another order and with other intermediate precision.
const NOISE_UBATCH: u32 = 32;
/// Mean divergence in nats below which nothing is judged: rounding of one logit in 32 bits makes about as much.
const FLOOR_LEAST: f64 = 1e-6;

impl LogitEquiv {
    /// Runs the contexts one after the other. `progress` is told the name of each run and the share of it that is done.
    ///
    /// # Errors
    /// When a run is not possible, or when it would prove nothing.
    pub fn run(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<LogitEquivReport, GateError> {
        if let Some(&window_cells) = self.windows.iter().find(|&&cells| cells >= self.n_ctx) {
            return Err(GateError::NothingSpills {
                window_cells,
                n_ctx: self.n_ctx,
            });
        }
        subject::check(model)?;
        let tokens = self.tokens(model)?;
        let spill = |cells: u32| RollingKv::window_cells(cells).order(Order::Tiled);
        // What is refused is refused now, and not when the first runs are done.
        for &cells in &self.windows {
            let refused = model.context(&self.params(Some(spill(cells)), self.threads, 512));
            drop(refused.map_err(rolling_kv::Error::from)?);
        }
        let n_vocab = model.vocab().len() as usize;

        let other_threads = if self.threads > 1 { 1 } else { 2 };
        let stock = self
            .evaluate(model, &tokens, None, self.threads, 512, None, |done| {
                progress("stock", done)
            })?
            .0;
        let noise = self
            .evaluate(
                model,
                &tokens,
                None,
                other_threads,
                NOISE_UBATCH,
                None,
                |done| progress("stock again", done),
            )?
            .0;
        let resident = RollingKv::resident().order(Order::Tiled);
        let resident = self
            .evaluate(
                model,
                &tokens,
                Some(resident),
                self.threads,
                512,
                None,
                |done| progress("resident", done),
            )?
            .0;
        let compare = |reference: &[f32], other: &[f32]| Comparison::new(reference, other, n_vocab);
        let mut runs = Vec::new();
        for &cells in &self.windows {
            let (spilled, residency) = self.evaluate(
                model,
                &tokens,
                Some(spill(cells)),
                self.threads,
                512,
                self.inject,
                |done| progress("spilled", done),
            )?;
            let tiles_tail = residency.totals().tiles_tail;
            if tiles_tail == 0 {
                return Err(GateError::NotEngaged);
            }
            let windows = residency.layers.iter().map(|layer| layer.window_cells);
            runs.push(SpilledRun {
                window_cells: windows.min().unwrap_or(0),
                vs_stock: compare(&stock, &spilled),
                vs_resident: compare(&resident, &spilled),
                residency: residency.to_string(),
                tiles_tail,
            });
        }
        let mut report = LogitEquivReport {
            verdict: Verdict::Pass,
            reasons: Vec::new(),
            prompt_tokens: tokens.len() - DECODED,
            decoded_tokens: DECODED,
            stock_vs_stock: compare(&stock, &noise),
            resident_vs_stock: compare(&stock, &resident),
            spilled: runs,
        };
        report.judge();
        Ok(report)
    }

    fn params(&self, spill: Option<RollingKv>, threads: u32, n_ubatch: u32) -> ContextParams {
        let params = ContextParams::new(self.n_ctx)
            .threads(threads)
            .n_ubatch(n_ubatch)
            .cache_types(self.kv_type, self.kv_type);
        match (spill, self.tile_cells) {
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
            .tokenize(&text, AddSpecial::Auto, ParseSpecial::No)
            .map_err(rolling_kv::Error::from)?;
        if tokens.len() < needed {
            return Err(GateError::TextTooShort {
                tokens: tokens.len(),
                needed,
            });
        }
        tokens.truncate(needed);
        Ok(tokens)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one run is one call, and each argument differs between runs"
    )]
    fn evaluate(
        &self,
        model: &Model,
        tokens: &[Token],
        spill: Option<RollingKv>,
        threads: u32,
        n_ubatch: u32,
        inject: Option<Inject>,
        mut progress: impl FnMut(f64),
    ) -> Result<(Vec<f32>, Residency), GateError> {
        let params = self.params(spill, threads, n_ubatch);
        let mut context = model.context(&params).map_err(rolling_kv::Error::from)?;
        let _fault = match inject {
            Some(Inject::Drop) => Some(Fault::DropTile.inject()),
            Some(Inject::Stale) => Some(Fault::StaleTile.inject()),
            Some(Inject::Flip) | None => None,
        };

        let prompt = tokens.len() - DECODED;
        let step = (prompt / PROMPT_OUTPUTS).max(1);
        let mut logits = Vec::new();
        for start in (0..prompt).step_by(BATCH) {
            let mut batch = Batch::with_capacity(BATCH);
            let end = (start + BATCH).min(prompt);
            for (at, token) in tokens.iter().enumerate().take(end).skip(start) {
                let output = if at % step == step - 1 || at + 1 == prompt {
                    Output::Yes
                } else {
                    Output::No
                };
                batch.push(*token, at as i32, &[0], output);
            }
            context.decode(&batch).map_err(rolling_kv::Error::from)?;
            for at in (start..end).filter(|at| at % step == step - 1 || at + 1 == prompt) {
                logits.extend_from_slice(
                    context
                        .logits(at - start)
                        .map_err(rolling_kv::Error::from)?
                        .values(),
                );
            }
            progress(end as f64 / tokens.len() as f64);
        }
        if inject == Some(Inject::Flip) {
            flip_a_byte(&mut context, prompt as u32 - 1)?;
        }
        for (at, token) in tokens.iter().enumerate().skip(prompt) {
            context
                .append(0, std::slice::from_ref(token))
                .map_err(rolling_kv::Error::from)?;
            logits.extend_from_slice(
                context
                    .last_logits()
                    .map_err(rolling_kv::Error::from)?
                    .values(),
            );
            progress((at + 1) as f64 / tokens.len() as f64);
        }
        Ok((logits, context.residency()))
    }
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

impl LogitEquivReport {
    fn judge(&mut self) {
        let floor = (self.stock_vs_stock.kld_mean * FLOOR_FACTOR).max(FLOOR_LEAST);
        let mut checks = vec![(
            self.resident_vs_stock.kld_mean <= floor,
            format!(
                "resident is at the noise floor of stock: mean KLD {:.3e} <= {floor:.3e}",
                self.resident_vs_stock.kld_mean
            ),
        )];
        for run in &self.spilled {
            let window = run.window_cells;
            checks.push((
                run.vs_resident.bits_equal,
                format!("spilled and resident have the same bits (window {window})"),
            ));
            checks.push((
                run.vs_stock.kld_mean <= floor,
                format!(
                    "spilled is at the noise floor of stock: mean KLD {:.3e} <= {floor:.3e} (window {window})",
                    run.vs_stock.kld_mean
                ),
            ));
        }
        for (holds, what) in checks {
            if !holds {
                self.verdict = Verdict::Fail;
            }
            self.reasons
                .push(format!("{}: {what}", if holds { "ok" } else { "FAILED" }));
        }
    }
}
