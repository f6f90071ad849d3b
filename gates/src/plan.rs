//! Whether a plan predicts what a decode step takes: the device is calibrated, the plan reckons with what was found and with the header of
//! the model's file, and the steps are run.

use rolling_kv::{
    Backend, CalibrateParams, ContextParams, Device, Model, ModelShape, Order, PlanEngine,
    PlanRequest, Rates, RollingKv, StateBlob, TailEngine, Token, calibrate, plan,
};

use serde::{Deserialize, Serialize};

use crate::decode_time::{self, Decoder, WARM_UP};
use crate::error::GateError;
use crate::plan_report::{PlanPoint, PlanReport, PlanThresholds, PlannedWindow};
use crate::store::Store;
use crate::subject;

/// Predicted against measured time of a decode step, over the length of the tail and over engines.
#[derive(Debug, Clone)]
pub struct PlanCheck {
    /// Tokens of context; a text fills all but the decoded ones.
    pub n_ctx: u32,
    /// Windows that are tried, from every cell to none.
    pub points: u32,
    /// Tokens decoded at each point; the first two do not count.
    pub decoded: u32,
    /// Engines that are tried.
    pub engines: Vec<PlanEngine>,
    /// What the device reckons the host's kernel to read, in bytes per second; `None`: it is measured.
    pub host_bytes_per_s: Option<f64>,
    /// Reckon with rates of half the speed: the check must then fail.
    pub halved: bool,
    /// Seed of the built-in text.
    pub seed: u64,
    /// By which numbers it is judged.
    pub thresholds: PlanThresholds,
}

/// A window is a whole number of these.
const TILE: u32 = 128;

/// Runs of each measurement of the device, where its time is that of the day.
const REPEATS: usize = 5;

/// What every point needs.
struct Rig<'a> {
    decoder: Decoder<'a>,
    prompt: &'a [Token],
    decoded: &'a [Token],
    rates: Rates,
    shape: &'a ModelShape,
    saved: Option<StateBlob>,
}

/// What a step took, what it brought to the device, and what the host read.
#[derive(Serialize, Deserialize)]
struct Found {
    step_ms: f64,
    moved_bytes: f64,
    host_bytes: f64,
}

impl PlanCheck {
    /// Calibrates, predicts and measures every point. `progress` is told what is being done and the share of it that is done; a point that
    /// is in `store` is not measured again.
    ///
    /// # Errors
    /// When a run is not possible, or when nothing was staged.
    pub fn run(
        &self,
        backend: Backend,
        device: Device,
        model: &Model,
        shape: &ModelShape,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<PlanReport, GateError> {
        subject::check(model)?;
        subject::fits(model, "the text", self.n_ctx, "--ctx")?;
        let rates = store.get("rates", || self.rates(backend, device, &mut progress))?;
        let tokens = decode_time::text(model, self.n_ctx, self.decoded, self.seed)?;
        let (prompt, decoded) = tokens.split_at(tokens.len() - self.decoded as usize);
        let mut rig = Rig {
            decoder: Decoder {
                model,
                n_ctx: self.n_ctx,
                copy_cells: 0,
                threads: None,
                warm_up: decode_time::WARM_UP,
            },
            prompt,
            decoded,
            rates: if self.halved {
                rates.halved()
            } else {
                rates.clone()
            },
            shape,
            saved: None,
        };
        let window = store.get("window", || self.window_of_target(&rig))?;
        let mut points = Vec::new();
        let all = (self.points + 1) * self.engines.len() as u32;
        for at in 0..=self.points {
            for engine in &self.engines {
                let key = format!("{engine}, window {}", self.window(at));
                let measured =
                    store.get(&key, || self.measure(&mut rig, at, *engine, &mut progress))?;
                points.push(self.predict(&rig, at, *engine, measured)?);
                progress("decoding", points.len() as f64 / f64::from(all));
            }
        }
        PlanReport::judge(rates, window, points, &self.thresholds)
    }

    fn rates(
        &self,
        backend: Backend,
        device: Device,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<Rates, GateError> {
        let mut params = CalibrateParams::new(1);
        params.repeats = REPEATS;
        params.host_kernel_bytes_per_s = self.host_bytes_per_s;
        if self.engines == [PlanEngine::Stream] {
            params.types.clear();
        }
        let found = calibrate(backend, Some(device), &params, |_, share| {
            progress("calibrating", share)
        });
        Ok(found.map_err(GateError::Calibrate)?.rates)
    }

    /// From every cell to none.
    fn window(&self, at: u32) -> u32 {
        let left = u64::from(self.n_ctx) * u64::from(self.points - at) / u64::from(self.points);
        left as u32 / TILE * TILE
    }

    fn request(&self, rig: &Rig<'_>) -> PlanRequest {
        // Halfway through the tokens that count.
        let depth = rig.prompt.len() + WARM_UP + (rig.decoded.len() - WARM_UP) / 2;
        PlanRequest::new(self.n_ctx)
            .depth(depth as u32)
            .tile_cells(TILE)
    }

    /// The window that half of the cache's memory gives, as planned and as a context chooses it.
    fn window_of_target(&self, rig: &Rig<'_>) -> Result<PlannedWindow, GateError> {
        let (k, v) = Default::default();
        let mib = (rig.shape.cell_bytes(k, v) * u64::from(self.n_ctx) / (2 << 20)).max(1);
        let request = self.request(rig).vram_budget_mib(mib);
        let planned = plan(&rig.rates, rig.shape, &request)?.window_cells;
        let spill = RollingKv::vram_budget_mib(mib)
            .order(Order::Tiled)
            .tile_cells(TILE);
        let params = ContextParams::new(self.n_ctx).rolling_kv(spill);
        let context = rig.decoder.model.context(&params)?;
        let residency = context.residency();
        let own = residency.layers.iter().filter(|layer| !layer.sliding);
        Ok(PlannedWindow {
            target_mib: mib,
            planned_cells: planned,
            chosen_cells: own.map(|layer| layer.window_cells).min().unwrap_or(0),
        })
    }

    fn measure(
        &self,
        rig: &mut Rig<'_>,
        at: u32,
        engine: PlanEngine,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<Found, GateError> {
        let saved = match &mut rig.saved {
            Some(saved) => saved,
            none => none.insert(rig.decoder.fill(rig.prompt, |done| {
                progress("reading the text", done);
            })?),
        };
        let spill = RollingKv::window_cells(self.window(at))
            .tile_cells(TILE)
            .tail_engine(match engine {
                PlanEngine::Host => TailEngine::Host,
                PlanEngine::Hybrid => TailEngine::Hybrid,
                _ => TailEngine::Stream,
            });
        let measured = rig.decoder.measure(spill, saved, rig.decoded)?;
        Ok(Found {
            step_ms: measured.step_ms,
            moved_bytes: measured.bytes,
            host_bytes: measured.host_bytes,
        })
    }

    fn predict(
        &self,
        rig: &Rig<'_>,
        at: u32,
        engine: PlanEngine,
        measured: Found,
    ) -> Result<PlanPoint, GateError> {
        let window_cells = self.window(at);
        let plan = plan(
            &rig.rates,
            rig.shape,
            &self.request(rig).window_cells(window_cells),
        )?;
        let found = plan.engine(engine);
        Ok(PlanPoint {
            engine: engine.name().to_owned(),
            window_cells,
            tail_bytes: plan.step_tail_bytes as f64,
            moved_bytes: measured.moved_bytes,
            host_bytes: measured.host_bytes,
            predicted_ms: found.map_or(f64::NAN, |plan| plan.step_s * 1e3),
            measured_ms: measured.step_ms,
        })
    }
}
