//! The locality profile: how far each layer and head looks over a text with a needle in it.

use rolling_kv::{
    AddSpecial, HeadLocality, LocalityParams, Model, ParseSpecial, Token, bin_start, locality,
};
use serde::Serialize;

use crate::error::GateError;
use crate::niah::Counted;
use crate::ruler::{Place, Sample, Task};
use crate::subject;

/// Where attention looks over a question of an exact length.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Tokens of the text.
    pub length: u32,
    /// Where the needle stands, in percent of the text.
    pub depth: f64,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the question.
    pub seed: u64,
    /// The text around the needle.
    pub essay: String,
}

/// One head.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct HeadProfile {
    /// Layer of the model.
    pub layer: u32,
    /// Query head of the layer.
    pub head: u32,
    /// Share of the weight by distance; bin `b` begins at the report's `bins[b]`.
    pub mass: Vec<f64>,
    /// Share at the bin's begin and farther, without the text's first positions.
    pub beyond: Vec<f64>,
    /// Share on the text's first positions, wherever they are.
    pub first: f64,
    /// Share at most three positions away.
    pub within_3: f64,
    /// Share at 64 positions and farther, without the first ones.
    pub beyond_64: f64,
    /// Share at 256 positions and farther, without the first ones.
    pub beyond_256: f64,
    /// Share at 1024 positions and farther, without the first ones.
    pub beyond_1024: f64,
    /// Share on the needle, by the queries behind the question.
    pub needle: f64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ProfileReport {
    /// Tokens of the text.
    pub length: u32,
    /// Positions that count as the first ones.
    pub first_positions: u32,
    /// The first query that counts.
    pub first_query: u32,
    /// The distances with which bins begin.
    pub bins: Vec<u32>,
    /// Every head, in the order of layers.
    pub heads: Vec<HeadProfile>,
}

/// Attention sinks: the text's first positions.
const FIRST: u32 = 4;

impl Profile {
    /// Reads the text and measures. `progress` is told the share that is done.
    ///
    /// # Errors
    /// When the question cannot be made, or attention keeps no weights.
    pub fn run(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<ProfileReport, GateError> {
        subject::check(model)?;
        let sample = Sample::make(
            Task::Single2,
            self.length as usize,
            Place::Depth(self.depth),
            self.seed,
            &self.essay,
            &Counted(model),
        )?;
        let needle = sample.needle.clone().unwrap_or_default();
        let at = sample.prompt.find(&needle).unwrap_or(0);
        let count =
            |text: &str| -> Result<u32, GateError> { Ok(tokens(model, text)?.len() as u32) };
        let begin = count(&sample.prompt[..at])?;
        let end = count(&sample.prompt[..at + needle.len()])?;
        let all = tokens(model, &sample.prompt)?;
        let first_query = self.length / 4;
        let params = LocalityParams {
            first_query,
            first_positions: FIRST,
            // The last tokens are the beginning of the answer, which leads to the needle's value.
            needle: Some((begin..end, self.length - 4)),
            threads: self.threads,
        };
        let found = locality(model, &all, &params, |done| {
            progress("reading", done as f64 / all.len() as f64);
        })?;
        let used = bin_start_count(self.length);
        Ok(ProfileReport {
            length: self.length,
            first_positions: FIRST,
            first_query,
            bins: (0..used).map(bin_start).collect(),
            heads: found.iter().map(|head| profile(head, used)).collect(),
        })
    }
}

fn tokens(model: &Model, text: &str) -> Result<Vec<Token>, GateError> {
    Ok(model
        .vocab()
        .tokenize(text, AddSpecial::Auto, ParseSpecial::No)?)
}

/// Bins that a text of this length can fill.
fn bin_start_count(length: u32) -> usize {
    (0..).take_while(|&bin| bin_start(bin) < length).count()
}

fn profile(head: &HeadLocality, used: usize) -> HeadProfile {
    HeadProfile {
        layer: head.layer,
        head: head.head,
        mass: head.mass[..used].to_vec(),
        beyond: (0..used).map(|bin| head.beyond(bin_start(bin))).collect(),
        first: head.on_first(),
        within_3: head.within(4),
        beyond_64: head.beyond(64),
        beyond_256: head.beyond(256),
        beyond_1024: head.beyond(1024),
        needle: head.needle.unwrap_or(0.0),
    }
}

impl ProfileReport {
    /// The layers, in order.
    #[must_use]
    pub fn layers(&self) -> Vec<u32> {
        let mut layers: Vec<u32> = self.heads.iter().map(|head| head.layer).collect();
        layers.dedup();
        layers
    }

    /// Mean over the heads of a layer.
    #[must_use]
    pub fn layer(&self, layer: u32, value: impl Fn(&HeadProfile) -> f64) -> f64 {
        let of = || self.heads.iter().filter(|head| head.layer == layer);
        of().map(value).sum::<f64>() / of().count().max(1) as f64
    }

    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 8] = [
        "layer",
        "first",
        "<= 3",
        ">= 64",
        ">= 256",
        ">= 1024",
        "needle",
        "best head",
    ];

    /// One row of a table: a layer's shares in percent, and the head of it that looks most at the needle.
    #[must_use]
    pub fn cells(&self, layer: u32) -> [String; 8] {
        let mean = |value: fn(&HeadProfile) -> f64| percent(self.layer(layer, value));
        let heads = self.heads.iter().filter(|head| head.layer == layer);
        let best = heads.map(|head| head.needle).fold(0.0, f64::max);
        [
            layer.to_string(),
            mean(|head| head.first),
            mean(|head| head.within_3),
            mean(|head| head.beyond_64),
            mean(|head| head.beyond_256),
            mean(|head| head.beyond_1024),
            mean(|head| head.needle),
            percent(best),
        ]
    }

    /// One line for all heads.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "mean of all heads: {} within 3 positions, {} on the first {}, {} at 256 and farther without those",
            percent(self.mean(|head| head.within_3)),
            percent(self.mean(|head| head.first)),
            self.first_positions,
            percent(self.mean(|head| head.beyond_256))
        )
    }

    /// What the shares are shares of.
    #[must_use]
    pub fn caption(&self) -> String {
        format!(
            "shares of attention weight in percent, mean of a layer's heads over the queries from position {} on;\nthe first {} positions count apart; the needle by the last queries, which ask for it",
            self.first_query, self.first_positions
        )
    }

    /// Of a layer's heads, the largest share that one has farther than `distance`, the text's first positions left out. Counted from the
    /// bin that the distance lies in, so rather too much.
    #[must_use]
    pub fn reach(&self, layer: u32, distance: u32) -> f64 {
        let bin = self.bins.partition_point(|&begin| begin <= distance);
        let heads = self.heads.iter().filter(|head| head.layer == layer);
        heads
            .filter_map(|head| head.beyond.get(bin.saturating_sub(1)))
            .copied()
            .fold(0.0, f64::max)
    }

    /// Mean over all heads.
    #[must_use]
    pub fn mean(&self, value: impl Fn(&HeadProfile) -> f64) -> f64 {
        self.heads.iter().map(value).sum::<f64>() / self.heads.len().max(1) as f64
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_reach_as_far_as_the_text() {
        assert_eq!(bin_start_count(2), 2);
        assert_eq!(bin_start_count(4096), 13);
        assert_eq!(bin_start_count(4097), 14);
    }
}
