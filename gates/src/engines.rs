//! What a tail costs by who attends to it: the device, which brings it over its link, the host, where it lies, or both at once.
//!
//! The time is the device's own where it reckons one. The host then takes what its rate says and nothing else, although on a small
//! machine its threads and the device's arithmetic share the cores.

use rolling_kv::{Fault, FaultGuard, Model, RollingKv, StateBlob, TailEngine, Token};
use serde::{Deserialize, Serialize};

use crate::decode_time::{self, Decoder, Measured};
use crate::engines_point::{EngineRun, EnginesLink, EnginesPoint, Rates};
use crate::error::GateError;
use crate::store::Store;
use crate::subject;

/// Decode time per token of every engine over the bytes of the tail.
#[derive(Debug, Clone)]
pub struct Engines {
    /// Tokens of context; a text fills all but the decoded ones.
    pub n_ctx: u32,
    /// Tails that are tried, in percent of the context.
    pub tail_percent: Vec<u32>,
    /// Cells of a tile.
    pub tile_cells: u32,
    /// Cells of a copy.
    pub copy_cells: u32,
    /// Tokens decoded before any counts: until the split is what the measured rates make of it.
    pub settling: u32,
    /// Tokens decoded that count.
    pub decoded: u32,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the built-in text.
    pub seed: u64,
    /// A fault to put into the runs with a tail.
    pub inject: Option<EngineFault>,
}

/// A fault that must turn the gate red.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineFault {
    /// The host begins before its query is there.
    HostEarly,
    /// Nobody waits for what the host computes.
    HostUnwaited,
    /// Link and host run at half of the rates that the bound is reckoned with.
    HalfRates,
}

impl EngineFault {
    fn inject(self) -> Option<FaultGuard> {
        match self {
            Self::HostEarly => Some(Fault::HostEarly.inject()),
            Self::HostUnwaited => Some(Fault::HostUnwaited.inject()),
            Self::HalfRates => None,
        }
    }
}

/// A step with every cell on the device.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Whole {
    step_ms: f64,
    digest: u64,
    reckoned: bool,
}

/// The text in a cache, and what is decoded behind it. It is read when the first measurement wants it.
struct Bench<'a> {
    decoder: Decoder<'a>,
    prompt: &'a [Token],
    decoded: &'a [Token],
    saved: Option<StateBlob>,
}

impl Bench<'_> {
    fn measure(
        &mut self,
        spill: RollingKv,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<Measured, GateError> {
        let saved = match &mut self.saved {
            Some(saved) => saved,
            none => none.insert(
                self.decoder
                    .fill(self.prompt, |done| progress(READING, done))?,
            ),
        };
        self.decoder.measure(spill, saved, self.decoded)
    }
}

/// The bar while the text is read.
const READING: &str = "reading the text";

impl Engines {
    /// Reads the text, so that several measurements can begin behind it.
    ///
    /// # Errors
    /// When the model or the text does not fit.
    pub fn read(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<StateBlob, GateError> {
        let tokens = self.text(model)?;
        let prompt = &tokens[..tokens.len() - self.steps() as usize];
        self.decoder(model)
            .fill(prompt, |done| progress(READING, done))
    }

    /// Measures every tail behind one link. `saved` is what [`read`](Self::read) made. `progress` is told what is being done and the
    /// share of it that is done; what is in `store` is not measured again.
    ///
    /// # Errors
    /// When a run is not possible, or when the host or the link had nothing to do where it was asked to.
    pub fn measure(
        &self,
        model: &Model,
        rates: Rates,
        saved: Option<StateBlob>,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<EnginesLink, GateError> {
        let tokens = self.text(model)?;
        let (prompt, decoded) = tokens.split_at(tokens.len() - self.steps() as usize);
        let mut bench = Bench {
            decoder: self.decoder(model),
            prompt,
            decoded,
            saved,
        };
        let whole = store.get("resident", || {
            let found = bench.measure(
                RollingKv::resident().tile_cells(self.tile_cells),
                &mut progress,
            )?;
            Ok(Whole {
                step_ms: found.mean_ms,
                digest: found.digest,
                reckoned: found.staging.device_ns > 0,
            })
        })?;
        let mut points = Vec::new();
        for (at, &percent) in self.tail_percent.iter().enumerate() {
            let window = self.window(percent);
            let key = format!("tail {percent} %, window {window}");
            let point = store.get(&key, || {
                self.point(&mut bench, window, rates, whole, &mut progress)
            })?;
            points.push(point);
            let share = (at + 1) as f64 / self.tail_percent.len() as f64;
            progress("decoding", share);
        }
        Ok(EnginesLink {
            rates,
            reckoned: whole.reckoned,
            prompt_tokens: prompt.len(),
            compute_ms: whole.step_ms,
            points,
        })
    }

    fn point(
        &self,
        bench: &mut Bench<'_>,
        window_cells: u32,
        rates: Rates,
        whole: Whole,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<EnginesPoint, GateError> {
        let mut run = |engine: TailEngine| -> Result<EngineRun, GateError> {
            let spill = RollingKv::window_cells(window_cells)
                .tile_cells(self.tile_cells)
                .tail_engine(engine);
            let fault = self.inject.and_then(EngineFault::inject);
            let found = bench.measure(spill, progress)?;
            drop(fault);
            Ok(EngineRun {
                ms: found.mean_ms,
                link_bytes: found.bytes,
                host_bytes: found.host_bytes,
                host_share: found.staging.host_share,
                tiles_host: found.tiles_host,
                bits_equal: found.digest == whole.digest,
            })
        };
        let runs = [
            run(TailEngine::Stream)?,
            run(TailEngine::Host)?,
            run(TailEngine::Hybrid)?,
            run(TailEngine::Auto)?,
        ];
        EnginesPoint::new(rates, window_cells, whole.step_ms, runs)
    }

    /// The text, of a model that can show something with it.
    fn text(&self, model: &Model) -> Result<Vec<Token>, GateError> {
        subject::check(model)?;
        subject::fits(model, "the text", self.n_ctx, "--ctx")?;
        decode_time::text(model, self.n_ctx, self.steps(), self.seed)
    }

    fn steps(&self) -> u32 {
        self.settling + self.decoded
    }

    fn decoder<'a>(&self, model: &'a Model) -> Decoder<'a> {
        Decoder {
            model,
            n_ctx: self.n_ctx,
            copy_cells: self.copy_cells,
            threads: Some(self.threads),
            warm_up: self.settling as usize,
        }
    }

    /// Whole tiles; the tail has one at least.
    fn window(&self, percent: u32) -> u32 {
        let tail = u64::from(self.n_ctx) * u64::from(percent) / 100;
        let tail = (tail as u32).clamp(self.tile_cells.min(self.n_ctx), self.n_ctx);
        (self.n_ctx - tail) / self.tile_cells * self.tile_cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_tiles_and_leaves_a_tail() {
        let gate = Engines {
            n_ctx: 8192,
            tail_percent: Vec::new(),
            tile_cells: 128,
            copy_cells: 1024,
            settling: 24,
            decoded: 10,
            threads: 1,
            seed: 1,
            inject: None,
        };
        assert_eq!(gate.window(100), 0);
        assert_eq!(gate.window(50), 4096);
        assert_eq!(gate.window(1), 8064);
        let short = Engines { n_ctx: 100, ..gate };
        assert_eq!(short.window(1), 0);
    }
}
