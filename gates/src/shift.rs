//! What moving tokens to other positions costs in precision: keys that were turned, beside keys that were made at their target.
//!
//! Every token is a sequence of its own, so its keys depend on nothing but itself and its position, in every layer: any position can
//! be compared with any other.

use std::collections::HashMap;
use std::rc::Rc;

use rolling_kv::{
    Batch, Context, ContextParams, KvType, Model, Order, Output, RollingKv, Row, Token,
};
use serde::{Deserialize, Serialize};

use crate::error::GateError;
use crate::shift_report::{ShiftErrors, ShiftReport, ShiftThresholds};
use crate::shift_series::{ShiftPoint, points};
use crate::store::Store;
use crate::subject;
use crate::turned_keys::{Difference, Keys, Turn, difference};

/// Keys of so many tokens, moved in every way that a [`ShiftSeries`](crate::ShiftSeries) has.
#[derive(Debug, Clone)]
pub struct Shift {
    /// Tokens whose keys are compared; half of them lie in the tail.
    pub tokens: u32,
    /// The highest position.
    pub most: i32,
    /// CPU threads.
    pub threads: u32,
    /// Seed of the tokens.
    pub seed: u64,
    /// Compare with keys that were made one position too far: the gate must then fail.
    pub misplace: bool,
    /// By which numbers it is judged.
    pub thresholds: ShiftThresholds,
}

/// What keys lose when they are stored and never move.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Keys that are compared.
    pub keys: usize,
    /// Fresh q8_0 keys beside fresh f32 ones.
    pub q8_0: f64,
    /// Fresh f16 keys beside fresh f32 ones.
    pub f16: f64,
}

/// Cells of a tile.
const TILE: u32 = 32;

impl Shift {
    /// Cells of each layer in the window.
    #[must_use]
    pub fn window_cells(&self) -> u32 {
        self.tokens / 2 / TILE * TILE
    }

    /// Moves keys in every way. `progress` is told the share of it that is done; a point that is in `store` is not moved again.
    ///
    /// # Errors
    /// When a context is refused, or the model turns no keys.
    pub fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<ShiftReport, GateError> {
        subject::check(model)?;
        self.can_move(model)?;
        let points = points(self.most);
        let mut made = Made::default();
        let stored = store.get("stored", || self.stored(model, &mut made))?;
        let mut errors = Vec::new();
        for (at, point) in points.iter().enumerate() {
            let found = store.get(&point.name(), || self.errors(model, &mut made, *point))?;
            errors.push(found);
            progress("moving keys", (at + 1) as f64 / points.len() as f64);
        }
        Ok(ShiftReport::judge(errors, &stored, &self.thresholds))
    }

    /// Keys of an ordinary resident cache have a position and can be moved at all.
    fn can_move(&self, model: &Model) -> Result<(), GateError> {
        let way = Way::stock(KvType::F16);
        let mut context = self.context(model, way)?;
        self.fill(&mut context, 0)?;
        self.read(&mut context, way)?;
        if context.memory().can_shift() {
            Ok(())
        } else {
            Err(GateError::NoRope)
        }
    }

    fn stored(&self, model: &Model, made: &mut Made) -> Result<Stored, GateError> {
        let plain = self.fresh(model, made, Way::stock(KvType::F32), 0)?;
        let mut off = |kv| -> Result<f64, GateError> {
            let keys = self.fresh(model, made, Way::ours(kv), 0)?;
            Ok(difference(&keys.unspread()?, &plain.unspread()?).rms)
        };
        Ok(Stored {
            keys: plain.rows.len(),
            q8_0: off(KvType::Q8_0)?,
            f16: off(KvType::F16)?,
        })
    }

    fn errors(
        &self,
        model: &Model,
        made: &mut Made,
        point: ShiftPoint,
    ) -> Result<ShiftErrors, GateError> {
        let mut moved = |way: Way| -> Result<Option<Difference>, GateError> {
            let Some(moved) = self.moved(model, way, point)? else {
                return Ok(None);
            };
            let target = point.target + i32::from(self.misplace);
            let fresh = self.fresh(model, made, way, target)?;
            Ok(Some(difference(&moved.floats()?, &fresh.floats()?)))
        };
        let mut must = |way: Way| moved(way)?.ok_or(GateError::NoRope);
        let ours = must(Way::ours(KvType::F16))?;
        let f32_stock = must(Way::stock(KvType::F32))?.rms;
        let f16_stock = must(Way::stock(KvType::F16))?.rms;
        let q8_0 = must(Way::ours(KvType::Q8_0))?.rms;
        let q8_0_stock = moved(Way::stock(KvType::Q8_0))?.map(|found| found.rms);
        Ok(ShiftErrors {
            point,
            f32_stock,
            f16_stock,
            f16: ours.rms,
            f16_max: ours.max,
            q8_0_stock,
            q8_0,
            fresh_exact: self.beside_exact(model, made, point.target)?,
            origin_exact: self.beside_exact(model, made, point.origin())?,
        })
    }

    /// Fresh f32 keys at a position beside those of position 0, turned in f64.
    fn beside_exact(
        &self,
        model: &Model,
        made: &mut Made,
        position: i32,
    ) -> Result<Option<f64>, GateError> {
        let way = Way::stock(KvType::F32);
        let raw = self.fresh(model, made, way, 0)?;
        if raw.turns.iter().any(|turn| !turn.plain) {
            return Ok(None);
        }
        let exact = raw.turned(f64::from(position))?;
        let fresh = self.fresh(model, made, way, position)?;
        Ok(Some(difference(&fresh.floats()?, &exact).rms))
    }

    /// Keys that were made at a position; many points ask for the same.
    fn fresh(
        &self,
        model: &Model,
        made: &mut Made,
        way: Way,
        position: i32,
    ) -> Result<Rc<Keys>, GateError> {
        if let Some(keys) = made.get(&(way, position)) {
            return Ok(Rc::clone(keys));
        }
        let mut context = self.context(model, way)?;
        self.fill(&mut context, position)?;
        let keys = Rc::new(self.read(&mut context, way)?);
        made.insert((way, position), Rc::clone(&keys));
        Ok(keys)
    }

    /// `None` where such a cache cannot move.
    fn moved(&self, model: &Model, way: Way, point: ShiftPoint) -> Result<Option<Keys>, GateError> {
        let mut context = self.context(model, way)?;
        self.fill(&mut context, point.origin())?;
        let mut memory = context.memory();
        if !memory.can_shift() {
            return Ok(None);
        }
        for _ in 0..point.count {
            for seq in 0..self.tokens as i32 {
                memory.shift(seq, .., -point.step)?;
            }
            memory.settle()?;
        }
        self.read(&mut context, way).map(Some)
    }

    fn context<'model>(
        &self,
        model: &'model Model,
        way: Way,
    ) -> Result<Context<'model>, GateError> {
        let mut params = ContextParams::new(self.tokens)
            .n_seq_max(self.tokens)
            .threads(self.threads)
            .kv_unified()
            .cache_types(way.kv, KvType::F16);
        if way.ours {
            params = params.rolling_kv(
                RollingKv::window_cells(self.window_cells())
                    .order(Order::Tiled)
                    .tile_cells(TILE),
            );
        }
        Ok(model.context(&params)?)
    }

    fn fill(&self, context: &mut Context<'_>, position: i32) -> Result<(), GateError> {
        let n_vocab = context.model().vocab().len() as u64;
        let mut batch = Batch::new();
        let mut state = self.seed;
        for seq in 0..self.tokens as i32 {
            // Knuth's linear congruential generator (MMIX); its high bits are the good ones.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let token = Token(((state >> 33) % n_vocab) as i32);
            batch.push(token, position, &[seq], Output::No);
        }
        context.decode(&batch)?;
        Ok(())
    }

    fn read(&self, context: &mut Context<'_>, way: Way) -> Result<Keys, GateError> {
        let mut keys = Keys {
            kv: way.kv,
            rows: Vec::new(),
            turns: Vec::new(),
        };
        for entry in 0..context.residency().layers.len() {
            let Some(rope) = context.layer_rope(entry) else {
                continue;
            };
            for cell in 0..self.tokens {
                if let Some((_, row)) = context.read_cell(entry, Row::K, 0, cell) {
                    keys.rows.push(row);
                    keys.turns.push(Turn::from(&rope));
                }
            }
        }
        if keys.rows.is_empty() {
            return Err(GateError::NoRope);
        }
        Ok(keys)
    }
}

/// Keys that were made, by how they are kept and where.
type Made = HashMap<(Way, i32), Rc<Keys>>;

/// A way to keep keys and to turn them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    kv: KvType,
    ours: bool,
}

impl Way {
    fn stock(kv: KvType) -> Self {
        Self { kv, ours: false }
    }

    fn ours(kv: KvType) -> Self {
        Self { kv, ours: true }
    }
}
