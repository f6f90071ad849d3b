//! A safe Rust API over the llama.cpp that rolling-kv pins, patches and builds.
//!
//! ```no_run
//! use rolling_kv::*;
//!
//! fn main() -> Result<()> {
//!     let backend = Backend::init()?;
//!     let model = Model::load(&backend, "model.gguf", &ModelParams::default())?;
//!     let mut context = model.context(&ContextParams::new(4096))?;
//!     let mut sampler = Sampler::builder().top_k(40).temperature(0.8).random(42).build(&model)?;
//!     let (vocab, mut text) = (model.vocab(), Utf8Stream::new());
//!     context.append(0, &vocab.tokenize("Once upon a time", AddSpecial::Auto, ParseSpecial::No)?)?;
//!     for _ in 0..64 {
//!         let token = sampler.sample(&context.last_logits()?)?;
//!         if vocab.is_end(token) { break }
//!         print!("{}", text.push(&vocab.piece(token, RenderSpecial::No)?));
//!         context.append(0, &[token])?;
//!     }
//!     Ok(println!("{}", text.finish()))
//! }
//! ```
//!
//! # What it promises
//! - Nothing that a caller can pass ends the process: what llama.cpp asserts is checked here first, exceptions are
//!   caught at the border, and each refusal is a typed error that says what to do.
//! - Lifetimes hold: a [`Context`], a [`Sampler`] and a [`Vocab`] borrow their [`Model`], and what is read from a
//!   context borrows the context. [`Model`] is `Send + Sync`; [`Context`] and [`Sampler`] are `Send`.
//! - A failed call changes nothing: a batch that fails is taken out again, a state that does not fit leaves what was
//!   there, an edit that is not possible is refused as a whole.
//!
//! What it cannot promise: a model file that is changed while it is mapped, or another program that takes the last
//! memory, still end the process.

mod backend;
mod batch;
mod breakdown;
mod calibrate;
mod chat;
mod context;
mod context_checks;
mod context_params;
mod cuda;
mod decode;
mod decode_checks;
mod device;
mod error;
mod fault;
mod ffi;
mod fingerprint;
mod gguf;
mod grammar;
mod host;
mod local;
mod locality;
mod logging;
mod logits;
mod memory;
mod model;
mod model_params;
mod perf;
mod plan;
mod probe;
mod ptr;
mod residency;
#[cfg(test)]
mod ring_protocol;
mod rolling;
mod rope;
mod sampler;
mod sampler_steps;
mod staging;
#[cfg(test)]
mod staging_plan;
mod state;
mod state_format;
mod state_transfer;
mod status;
mod tail;
mod tensor_fill;
mod text_limits;
mod threads;
mod user_model;
mod utf8;
mod vocab;

pub use backend::Backend;
pub use batch::{Batch, Output};
pub use breakdown::MemoryUse;
pub use calibrate::{CalibrateParams, Calibration, Measured, calibrate};
pub use chat::{Answer, ChatMessage, ChatTemplate};
pub use context::{AbortHandle, Context};
pub use context_params::{Attention, ContextParams, FlashAttention, KvType, Pooling, RopeScaling};
pub use cuda::{CudaCard, CudaDriver, CudaLink};
pub use device::{Device, DeviceKind, Feature, LinkTotals};
pub use error::{
    BackendError, ChatError, ContextError, CudaError, DecodeError, Error, Failure, FailureKind,
    LoadError, LocalLayersError, LocalityError, OutputError, PlanError, Result, RollingKvError,
    SamplerError, SequenceError, StateError, VocabError,
};
pub use fault::{Fault, FaultGuard};
pub use local::LocalLayers;
pub use locality::{HeadLocality, LocalityParams, bin_start, locality};
pub use logits::Logits;
pub use memory::Memory;
pub use model::Model;
pub use model_params::{LoadMode, ModelParams, SplitMode};
pub use perf::Perf;
pub use plan::{
    EnginePlan, LayerShape, ModelShape, Plan, PlanEngine, PlanFit, PlanRequest, Rates, plan,
};
pub use probe::{Probe, ProbeKind, ProbeRun};
pub use residency::{Counters, LayerResidency, Local, Part, Residency, Row};
pub use rolling::{Order, RollingKv, Schedule, Shift, ShiftPath};
pub use rope::LayerRope;
pub use sampler::Sampler;
pub use sampler_steps::{Penalties, SamplerBuilder};
pub use staging::Staging;
pub use state::StateBlob;
pub use state_format::StateKind;
pub use tail::TailEngine;
pub use tensor_fill::{TensorSlot, TensorType};
pub use user_model::UserModel;
pub use utf8::Utf8Stream;
pub use vocab::{AddSpecial, ParseSpecial, RenderSpecial, Token, Vocab, VocabKind};
