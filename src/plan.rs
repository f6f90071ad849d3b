//! What fits a machine and how fast it would be, before anything is loaded. The arithmetic is `kernels/src/rkv-planner.cpp`, which a
//! context asks too when it is made.

mod header;
mod model;
mod rates;
mod request;
#[cfg(test)]
mod tests;

pub use model::{LayerShape, ModelShape};
pub use rates::Rates;
pub use request::PlanRequest;

use std::fmt;

use crate::error::PlanError;
use crate::ffi;

/// Who attends to the tail when a token is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanEngine {
    /// The device: the tail comes to it over the link, ahead of the layers that read it.
    Stream,
    /// The host, where the tail lies.
    Host,
    /// Both, so that they end together.
    Hybrid,
}

impl PlanEngine {
    /// All of them, in the order of [`Plan::engines`].
    pub const ALL: [Self; 3] = [Self::Stream, Self::Host, Self::Hybrid];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Host => "host",
            Self::Hybrid => "hybrid",
        }
    }

    fn from_ffi(id: ffi::rkv_plan_engine_id) -> Self {
        match id {
            ffi::RKV_PLAN_HOST => Self::Host,
            ffi::RKV_PLAN_HYBRID => Self::Hybrid,
            _ => Self::Stream,
        }
    }
}

impl fmt::Display for PlanEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanFit {
    /// Every cell lies on the device.
    Resident,
    /// A window of each layer does; the rest lies in host memory.
    Window,
    /// What has to lie on the device is more than it has free, by this much.
    NotOnDevice {
        /// What is missing, in bytes.
        missing_bytes: u64,
    },
    /// The tail is more than the host has free, by this much.
    NotOnHost {
        /// What is missing, in bytes.
        missing_bytes: u64,
    },
}

impl PlanFit {
    /// Whether it can be run.
    #[must_use]
    pub fn fits(self) -> bool {
        matches!(self, Self::Resident | Self::Window)
    }
}

/// What one engine would take for a decode step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EnginePlan {
    /// Which.
    pub engine: PlanEngine,
    /// A step of all sequences, in seconds.
    pub step_s: f64,
    /// The share of the tail's bytes that the host attends to.
    pub host_share: f64,
}

/// What fits, and how fast it would be.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Whether it fits.
    pub fit: PlanFit,
    /// Cells of each sequence, after rounding.
    pub n_ctx: u32,
    /// Cells of each layer and sequence on the device.
    pub window_cells: u32,
    /// The windows of all layers, in bytes.
    pub window_bytes: u64,
    /// Host memory of the tails, in bytes.
    pub tail_bytes: u64,
    /// Bytes of the tails that a step reads at the planned depth.
    pub step_tail_bytes: u64,
    /// Slots of the staging ring; 0 where nothing is brought.
    pub ring_slots: u32,
    /// Cells of a copy.
    pub copy_cells: u32,
    /// One slot, in bytes.
    pub slot_bytes: u64,
    /// Everything on the device, in bytes: weights, windows, what lies beside them, slots, and working memory as estimated.
    pub device_bytes: u64,
    /// Of it the working memory, as estimated.
    pub compute_bytes: u64,
    /// A step if every cell were on the device, in seconds.
    pub resident_step_s: f64,
    /// A token of a prompt as long as the planned depth, on average, in seconds.
    pub prompt_token_s: f64,
    /// The engines whose rates are known, the streaming one first.
    pub engines: Vec<EnginePlan>,
    /// The one that is predicted to be fastest; the simpler one where two are within three percent.
    pub best: PlanEngine,
}

impl Plan {
    /// What an engine would take; `None` when its rates are not known.
    #[must_use]
    pub fn engine(&self, engine: PlanEngine) -> Option<&EnginePlan> {
        self.engines.iter().find(|plan| plan.engine == engine)
    }
}

/// Says what fits and how fast it would be.
///
/// ```
/// use rolling_kv::{ModelShape, PlanFit, PlanRequest, Rates, plan};
/// let rates = Rates {
///     to_device_pinned_bytes_per_s: 25e9,
///     device_memory_bytes_per_s: 800e9,
///     device_bytes: 23 << 30,
///     host_bytes: 60 << 30,
///     ..Rates::default()
/// };
/// // 48 layers of 40 query and 8 KV heads of 128; 9 GiB of weights.
/// let shape = ModelShape::uniform("14b", 48, 40, 8, 128, 9 << 30);
/// let found = plan(&rates, &shape, &PlanRequest::new(131_072))?;
/// assert_eq!(found.fit, PlanFit::Window);
/// assert!(found.window_cells < 131_072);
/// # Ok::<(), rolling_kv::PlanError>(())
/// ```
///
/// # Errors
/// When a number is none that one can reckon with, or the types do not suit the model. A model that does not fit is an answer.
pub fn plan(rates: &Rates, shape: &ModelShape, request: &PlanRequest) -> Result<Plan, PlanError> {
    rates.check()?;
    let n_ctx = request.check()?;
    let layers = shape.layers_to_ffi(request)?;
    let compute_bytes = shape.compute_bytes(request.ubatch, n_ctx);
    let model = ffi::rkv_plan_model {
        layers: layers.as_ptr(),
        n_layer: layers.len() as u32,
        weight_bytes: shape.weight_bytes,
        step_weight_bytes: shape.step_weight_bytes,
        beside_bytes: shape.beside_bytes(request, n_ctx),
        compute_bytes,
        n_node: shape.nodes,
        token_flops: shape.token_flops,
    };
    let raw_rates = rates.to_ffi();
    let ask = request.to_ffi(n_ctx);
    // SAFETY: the three structs and the layers that one of them points to are valid for the call, which keeps none of them.
    let raw = unsafe { ffi::rkv_plan_make(&raw const raw_rates, &raw const model, &raw const ask) };
    let engines = PlanEngine::ALL.into_iter().zip(raw.engines);
    Ok(Plan {
        fit: match raw.fit {
            ffi::RKV_PLAN_RESIDENT => PlanFit::Resident,
            ffi::RKV_PLAN_WINDOW => PlanFit::Window,
            ffi::RKV_PLAN_NO_DEVICE => PlanFit::NotOnDevice {
                missing_bytes: raw.missing_bytes,
            },
            _ => PlanFit::NotOnHost {
                missing_bytes: raw.missing_bytes,
            },
        },
        n_ctx,
        window_cells: raw.window_cells as u32,
        window_bytes: raw.window_bytes,
        tail_bytes: raw.tail_bytes,
        step_tail_bytes: raw.step_tail_bytes,
        ring_slots: raw.ring_depth,
        copy_cells: raw.copy_cells,
        slot_bytes: raw.slot_bytes,
        device_bytes: raw.device_bytes,
        compute_bytes,
        resident_step_s: raw.compute_s,
        prompt_token_s: raw.prompt_s,
        engines: engines
            .filter(|(_, plan)| plan.possible)
            .map(|(engine, plan)| EnginePlan {
                engine,
                step_s: plan.step_s,
                host_share: plan.host_share,
            })
            .collect(),
        best: PlanEngine::from_ffi(raw.best),
    })
}
