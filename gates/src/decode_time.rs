//! What a decode step takes with a cache that lies in a given way.
//!
//! The time is the device's own where it reckons one, so that the ratios are those of the schedules and not of this machine's
//! moods; else it is the time of day.

use std::time::Instant;

use rolling_kv::{
    AddSpecial, Context, ContextParams, Model, Order, ParseSpecial, RollingKv, Staging, StateBlob,
    Token,
};

use crate::digest::Digest;
use crate::error::GateError;
use crate::noise_text::noise_text;

/// Tokens that do not count with a fixed way to attend: the ring has not run yet.
pub const WARM_UP: usize = 2;

/// The built-in text, as many tokens as the context has; the last `decoded` of them are decoded.
pub fn text(model: &Model, n_ctx: u32, decoded: u32, seed: u64) -> Result<Vec<Token>, GateError> {
    let least = decoded + 1;
    if n_ctx < least {
        return Err(GateError::ContextTooSmall { n_ctx, least });
    }
    let needed = n_ctx as usize;
    let text = noise_text(seed, needed);
    let vocab = model.vocab();
    let mut tokens = vocab.tokenize(&text, AddSpecial::Auto, ParseSpecial::No)?;
    tokens.truncate(needed);
    Ok(tokens)
}

/// Where a text is read and continued.
pub struct Decoder<'a> {
    pub model: &'a Model,
    /// Tokens of context.
    pub n_ctx: u32,
    /// Cells of a copy.
    pub copy_cells: u32,
    /// CPU threads; `None`: as many as there are.
    pub threads: Option<u32>,
    /// Tokens that do not count.
    pub warm_up: usize,
}

/// Milliseconds of a step, bytes that it brought, times that it waited.
pub struct Measured {
    /// The median.
    pub step_ms: f64,
    /// The mean, which the median hides if only some steps are slow.
    pub mean_ms: f64,
    pub bytes: f64,
    /// Bytes of K and V that the host read.
    pub host_bytes: f64,
    pub stalls: f64,
    pub staging: Staging,
    /// A digest of every logit, bit by bit.
    pub digest: u64,
    /// K and V in device memory, in bytes.
    pub device_bytes: u64,
    /// Tiles that the host attended to, those of the warm-up too.
    pub tiles_host: u64,
}

impl Decoder<'_> {
    fn context(&self, spill: RollingKv) -> Result<Context<'_>, GateError> {
        let params = ContextParams::new(self.n_ctx)
            .rolling_kv(spill.order(Order::Tiled).copy_cells(self.copy_cells));
        let params = match self.threads {
            Some(threads) => params.threads(threads),
            None => params,
        };
        Ok(self.model.context(&params)?)
    }

    /// Reads the prompt with every cell on the device.
    pub fn fill(
        &self,
        prompt: &[Token],
        mut progress: impl FnMut(f64),
    ) -> Result<StateBlob, GateError> {
        const PART: usize = 512;
        let mut context = self.context(RollingKv::resident())?;
        for (at, part) in prompt.chunks(PART).enumerate() {
            context.append(0, part)?;
            progress((at * PART + part.len()) as f64 / prompt.len() as f64);
        }
        Ok(context.save_sequence(0)?)
    }

    /// Continues it token by token with a cache that lies as `spill` says.
    pub fn measure(
        &self,
        spill: RollingKv,
        saved: &StateBlob,
        decoded: &[Token],
    ) -> Result<Measured, GateError> {
        let mut context = self.context(spill)?;
        context.restore_sequence(saved, 0)?;
        let mut times = Vec::new();
        let mut digest = Digest::new();
        let mut before = Staging::default();
        let mut staging = context.staging().unwrap_or_default();
        for (at, token) in decoded.iter().enumerate() {
            if at == self.warm_up {
                before = staging;
            }
            let (started, since) = (Instant::now(), staging.device_ns);
            context.append(0, std::slice::from_ref(token))?;
            let logits = context.last_logits()?;
            let wall_ms = started.elapsed().as_secs_f64() * 1e3;
            digest.floats(logits.values());
            staging = context.staging().unwrap_or_default();
            let device_ms = (staging.device_ns - since) as f64 / 1e6;
            if at >= self.warm_up {
                times.push(if device_ms > 0.0 { device_ms } else { wall_ms });
            }
        }
        let steps = (staging.steps - before.steps).max(1) as f64;
        let residency = context.residency();
        Ok(Measured {
            step_ms: median(&mut times),
            mean_ms: times.iter().sum::<f64>() / times.len() as f64,
            bytes: (staging.bytes - before.bytes) as f64 / steps,
            stalls: (staging.stalls - before.stalls) as f64 / steps,
            host_bytes: (staging.host_bytes - before.host_bytes) as f64
                / (decoded.len() - self.warm_up) as f64,
            staging,
            digest: digest.value(),
            device_bytes: residency.device_bytes(),
            tiles_host: residency.totals().tiles_host,
        })
    }
}

/// The middle value; of an even number, the upper one.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
