//! Where attention looks: how much of each head's weight lies how far from the query.

use std::ffi::c_void;
use std::ops::Range;

use crate::batch::{Batch, Output};
use crate::context::Context;
use crate::context_params::{ContextParams, FlashAttention};
use crate::error::{Error, LocalityError};
use crate::ffi;
use crate::model::Model;
use crate::ptr::Ptr;
use crate::vocab::Token;

/// What is measured over a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalityParams {
    /// The first query that counts; those before have little to look at.
    pub first_query: u32,
    /// Positions that count as the text's first ones: attention sinks.
    pub first_positions: u32,
    /// Positions of a needle, and the first query that asks for it.
    pub needle: Option<(Range<u32>, u32)>,
    /// CPU threads.
    pub threads: u32,
}

/// Where one head looks, over all queries that counted. Masses are shares of the attention weight, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HeadLocality {
    /// Layer of the model.
    pub layer: u32,
    /// Query head of the layer.
    pub head: u32,
    /// Share by distance: 0, 1, 2 to 3, 4 to 7, and so on; bin `b` begins at [`bin_start`].
    pub mass: Vec<f64>,
    /// Of it, the share on the text's first positions.
    pub first: Vec<f64>,
    /// Share on the needle, over the queries that ask for it; `None` without one.
    pub needle: Option<f64>,
}

/// The distance with which a bin begins.
#[must_use]
pub fn bin_start(bin: usize) -> u32 {
    match bin {
        0 => 0,
        bin => 1u32.checked_shl(bin as u32 - 1).unwrap_or(u32::MAX),
    }
}

impl HeadLocality {
    /// Share of the weight at this distance or farther, the text's first positions left out. `distance` must begin a bin; else the
    /// bin that it lies in is left out.
    #[must_use]
    pub fn beyond(&self, distance: u32) -> f64 {
        (0..self.mass.len())
            .filter(|&bin| bin_start(bin) >= distance)
            .map(|bin| self.mass[bin] - self.first[bin])
            .sum()
    }

    /// Share of the weight nearer than this distance, which must begin a bin.
    #[must_use]
    pub fn within(&self, distance: u32) -> f64 {
        (0..self.mass.len())
            .filter(|&bin| bin_start(bin) < distance)
            .map(|bin| self.mass[bin])
            .sum()
    }

    /// Share of the weight on the text's first positions.
    #[must_use]
    pub fn on_first(&self) -> f64 {
        self.first.iter().sum()
    }
}

/// The measuring object that llama.cpp's evaluation calls into.
struct Probe(Ptr<ffi::rkv_locality>);

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: made by rkv_locality_new, freed once, and no context calls into it any more.
        unsafe { ffi::rkv_locality_free(self.0.as_mut_ptr()) };
    }
}

/// Tokens that are computed at once: the weights of one layer are read back as a whole.
const UBATCH: u32 = 64;

/// Measures where each head looks while the model reads a text. Runs without flash attention, whose weights are never written down;
/// so it is slow, and takes memory for every weight of a step.
///
/// `progress` is told how many tokens were read.
///
/// # Errors
/// When the context is refused, a token is none of the vocabulary's, or the model's attention keeps no weights.
pub fn locality(
    model: &Model,
    tokens: &[Token],
    params: &LocalityParams,
    mut progress: impl FnMut(usize),
) -> Result<Vec<HeadLocality>, Error> {
    let (needle, asker) = params.needle.clone().unwrap_or((0..0, u32::MAX));
    let position = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let raw = ffi::rkv_locality_params {
        first_query: position(params.first_query),
        n_first: position(params.first_positions),
        needle_begin: position(needle.start),
        needle_end: position(needle.end),
        asker_begin: position(asker),
    };
    // SAFETY: the parameters are valid for the call.
    let made = unsafe { ffi::rkv_locality_new(&raw const raw) };
    let mut probe = Probe(Ptr::new(made).ok_or(LocalityError::NoWeights)?);

    let context = ContextParams::new(tokens.len() as u32)
        .n_ubatch(UBATCH)
        .threads(params.threads)
        .flash_attention(FlashAttention::Off);
    let eval = (
        Some(ffi::rkv_locality_eval as unsafe extern "C" fn(_, _, _) -> _),
        probe.0.as_mut_ptr().cast::<c_void>(),
    );
    let mut context = Context::watched(model, &context, eval)?;
    for (at, part) in tokens.chunks(UBATCH as usize).enumerate() {
        let first = at * UBATCH as usize;
        // SAFETY: the probe lives, and no evaluation runs.
        unsafe { ffi::rkv_locality_begin(probe.0.as_mut_ptr(), first as i32) };
        let mut batch = Batch::with_capacity(part.len());
        for (i, token) in part.iter().enumerate() {
            batch.push(*token, (first + i) as i32, &[0], Output::Yes);
        }
        context.decode(&batch)?;
        progress(first + part.len());
    }
    drop(context);
    let heads = read(&mut probe);
    if heads.is_empty() {
        return Err(LocalityError::NoWeights.into());
    }
    Ok(heads)
}

fn read(probe: &mut Probe) -> Vec<HeadLocality> {
    // SAFETY: the probe lives.
    let count = unsafe { ffi::rkv_locality_count(probe.0.as_ptr()) };
    (0..count)
        .map(|index| {
            // SAFETY: plain numbers, for which all zeroes is a value.
            let mut raw: ffi::rkv_head_locality = unsafe { std::mem::zeroed() };
            // SAFETY: the probe lives, the index is below its count, and `raw` is valid for the call to fill.
            unsafe { ffi::rkv_locality_get(probe.0.as_ptr(), index, &raw mut raw) };
            let share = |sum: f64| sum / (raw.queries.max(1) as f64);
            HeadLocality {
                layer: u32::try_from(raw.layer).unwrap_or(0),
                head: raw.head,
                mass: raw.mass.iter().copied().map(share).collect(),
                first: raw.first.iter().copied().map(share).collect(),
                needle: (raw.askers > 0).then(|| raw.needle / raw.askers as f64),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_and_shares_add_up() {
        assert_eq!([0, 1, 2, 3, 4].map(bin_start), [0, 1, 2, 4, 8]);
        let head = HeadLocality {
            layer: 0,
            head: 0,
            mass: vec![0.25, 0.25, 0.125, 0.125, 0.25],
            first: vec![0.0, 0.0, 0.0, 0.0, 0.125],
            needle: None,
        };
        assert_eq!(head.within(4), 0.625);
        assert_eq!(head.beyond(4), 0.25);
        assert_eq!(head.on_first(), 0.125);
    }
}
