//! Making a spilled context and its resident twin.

use std::fmt::Debug;

use rolling_kv::{Context, ContextParams, Model, Order, RollingKv, Token};

use crate::common::{logits_after, some_tokens};

pub const TILE: u32 = 32;

pub fn tiled(spill: RollingKv) -> RollingKv {
    spill.order(Order::Tiled).tile_cells(TILE)
}

pub fn spilled<'model>(
    model: &'model Model,
    params: &ContextParams,
    spill: RollingKv,
) -> Context<'model> {
    model
        .context(&params.clone().rolling_kv(tiled(spill)))
        .expect("the spilled context is made")
}

pub fn resident<'model>(model: &'model Model, params: &ContextParams) -> Context<'model> {
    spilled(model, params, RollingKv::resident())
}

/// Logits after a prompt that is longer than a ubatch, and after each of a few tokens more.
pub fn prompt_and_decode(context: &mut Context<'_>, seq: i32, tokens: usize) -> Vec<f32> {
    let tokens = some_tokens(tokens, 11);
    let (prompt, rest) = tokens.split_at(tokens.len() - 5);
    let mut logits = logits_after(context, seq, prompt);
    for token in rest {
        logits.extend(logits_after(context, seq, &[*token]));
    }
    logits
}

pub fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

pub fn assert_same_bits(left: &[f32], right: &[f32], what: &str) {
    assert!(
        left.iter().all(|logit| logit.is_finite()),
        "{what}: a logit is not finite"
    );
    assert!(bits(left) == bits(right), "{what}: the bits differ");
}

/// A resident context and its spilled twin, which must answer the same to everything.
pub struct Twins<'model> {
    pub resident: Context<'model>,
    pub spilled: Context<'model>,
}

impl<'model> Twins<'model> {
    pub fn new(model: &'model Model, params: &ContextParams, spill: RollingKv) -> Self {
        Self {
            resident: resident(model, params),
            spilled: spilled(model, params, spill),
        }
    }

    /// Does `step` to both.
    pub fn both<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        step: impl Fn(&mut Context<'model>) -> T,
    ) -> T {
        let expected = step(&mut self.resident);
        let found = step(&mut self.spilled);
        assert!(
            found == expected,
            "{what}: {found:.300?} instead of {expected:.300?}"
        );
        found
    }

    /// Appends to a sequence of both.
    pub fn append(&mut self, what: &str, seq: i32, tokens: &[Token]) -> Vec<f32> {
        let expected = logits_after(&mut self.resident, seq, tokens);
        let found = logits_after(&mut self.spilled, seq, tokens);
        assert_same_bits(&found, &expected, what);
        found
    }

    /// Fails unless attention of the spilled one has read a tail.
    pub fn assert_spilled(&self, what: &str) {
        let totals = self.spilled.residency().totals();
        assert!(
            totals.tiles_tail > 0,
            "{what}: no tail was read, {totals:?}"
        );
    }
}
