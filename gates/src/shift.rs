//! What moving tokens to other positions costs in precision: keys that were turned, beside keys that were made at their target.
//!
//! Every token is a sequence of its own, so its keys depend on nothing but itself and its position, in every layer: any position can
//! be compared with any other.

use std::collections::HashMap;
use std::rc::Rc;

use rolling_kv::{
    Batch, Context, ContextParams, KvType, Model, Order, Output, RollingKv, Row, Token,
};
use serde::Serialize;

use crate::error::GateError;
use crate::shift_series::{ShiftPoint, ShiftSeries, points};
use crate::subject;
use crate::turned_keys::{Difference, Keys, Turn, difference};
use crate::verdict::Verdict;

/// Keys of so many tokens, moved in every way that a [`ShiftSeries`] has.
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
}

/// Root mean square of the difference over that of the reference, one a way to keep keys.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ShiftErrors {
    /// Where from, where to, and in how many moves.
    #[serde(flatten)]
    pub point: ShiftPoint,
    /// f32 in an ordinary cache, turned by llama.cpp, beside fresh ones.
    pub f32_stock: f64,
    /// f16 in an ordinary cache, turned by llama.cpp.
    pub f16_stock: f64,
    /// f16 in window and tail, turned by rolling-kv.
    pub f16: f64,
    /// q8_0 in an ordinary cache; absent where llama.cpp cannot turn it.
    pub q8_0_stock: Option<f64>,
    /// q8_0 in window and tail.
    pub q8_0: f64,
    /// The largest difference of one channel, f16 in window and tail.
    pub f16_max: f64,
    /// Fresh f32 keys at the target beside exact ones (angles in f64); absent where the model's angles are not plain.
    pub fresh_exact: Option<f64>,
    /// Fresh f32 keys at the origin beside exact ones: what no move can take back.
    pub origin_exact: Option<f64>,
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ShiftReport {
    /// Pass or fail.
    pub verdict: Verdict,
    /// Why, one line a threshold.
    pub reasons: Vec<String>,
    /// Keys compared at each point: tokens times layers.
    pub keys: usize,
    /// Fresh q8_0 keys beside fresh f32 ones: what that type loses without a move.
    pub q8_0_stored: f64,
    /// Fresh f16 keys beside fresh f32 ones.
    pub f16_stored: f64,
    /// Moves of 256 positions after which f16 keys are as far off as fresh q8_0 keys, by the growth with the square root of their count.
    pub moves_to_q8_0: f64,
    /// The points.
    pub points: Vec<ShiftErrors>,
}

/// A move rounds each channel once: half a unit in the last place of f16 (2^-11) is the most, and a third of that is usual.
const F16_A_MOVE: f64 = 1.0 / 2048.0;
/// A block of q8_0 has steps of a 127th of its largest channel, and is rounded once a move.
const Q8_0_A_MOVE: f64 = 1.0 / 127.0;
/// Angles are f32 where keys are made: half a unit in the last place (2^-24) of a radian a position, both at origin and target.
const ANGLE_A_POSITION: f64 = 1.0 / 16_777_216.0;
/// rolling-kv may be this much farther off than llama.cpp.
const OVER_STOCK: f64 = 1.1;

impl Shift {
    /// Moves keys in every way. `progress` is told the share of it that is done.
    ///
    /// # Errors
    /// When a context is refused, or the model turns no keys.
    pub fn run(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<ShiftReport, GateError> {
        subject::check(model)?;
        let points = points(self.most);
        let mut made = Made::default();
        let mut errors = Vec::new();
        for (at, point) in points.iter().enumerate() {
            errors.push(self.errors(model, &mut made, *point)?);
            progress("moving keys", (at + 1) as f64 / points.len() as f64);
        }
        let plain = self.fresh(model, &mut made, Way::stock(KvType::F32), 0)?;
        let mut stored = |kv| -> Result<f64, GateError> {
            let keys = self.fresh(model, &mut made, Way::ours(kv), 0)?;
            Ok(difference(&keys.unspread()?, &plain.unspread()?).rms)
        };
        let (q8_0_stored, f16_stored) = (stored(KvType::Q8_0)?, stored(KvType::F16)?);
        Ok(self.judge(errors, plain.rows.len(), q8_0_stored, f16_stored))
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
        let rms = |found: Option<Difference>| found.map_or(f64::NAN, |found| found.rms);
        let ours = moved(Way::ours(KvType::F16))?.ok_or(GateError::NoRope)?;
        let f32_stock = rms(moved(Way::stock(KvType::F32))?);
        let f16_stock = rms(moved(Way::stock(KvType::F16))?);
        let q8_0_stock = moved(Way::stock(KvType::Q8_0))?.map(|found| found.rms);
        let q8_0 = rms(moved(Way::ours(KvType::Q8_0))?);
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
                memory
                    .shift(seq, .., -point.step)
                    .map_err(rolling_kv::Error::from)?;
            }
            memory.settle().map_err(rolling_kv::Error::from)?;
        }
        self.read(&mut context, way).map(Some)
    }

    fn context<'model>(
        &self,
        model: &'model Model,
        way: Way,
    ) -> Result<Context<'model>, GateError> {
        const TILE: u32 = 32;
        let mut params = ContextParams::new(self.tokens)
            .n_seq_max(self.tokens)
            .threads(self.threads)
            .kv_unified()
            .cache_types(way.kv, KvType::F16);
        if way.ours {
            let window = self.tokens / 2 / TILE * TILE;
            params = params.rolling_kv(
                RollingKv::window_cells(window)
                    .order(Order::Tiled)
                    .tile_cells(TILE),
            );
        }
        Ok(model.context(&params).map_err(rolling_kv::Error::from)?)
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
        context.decode(&batch).map_err(rolling_kv::Error::from)?;
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

    fn judge(
        &self,
        points: Vec<ShiftErrors>,
        keys: usize,
        q8_0_stored: f64,
        f16_stored: f64,
    ) -> ShiftReport {
        let share = |value: f64, most: f64| value / most;
        let mut worst = [0.0f64; 4];
        for errors in &points {
            let point = &errors.point;
            let angles = ANGLE_A_POSITION * (f64::from(point.origin()) + f64::from(point.target));
            // Each move rounds, and so did storing, on both sides.
            let roundings = (f64::from(point.count) + 2.0).sqrt();
            let found = [
                share(errors.f16, F16_A_MOVE * roundings + angles),
                share(errors.q8_0, Q8_0_A_MOVE * roundings + angles),
                share(errors.f16, errors.f16_stock),
                errors
                    .q8_0_stock
                    .map_or(0.0, |stock| share(errors.q8_0, stock)),
            ];
            for (worst, found) in worst.iter_mut().zip(found) {
                *worst = worst.max(found);
            }
        }
        let names = [
            ("f16, of roundings and f32 angles at most", 1.0),
            ("q8_0, of roundings and f32 angles at most", 1.0),
            ("f16, of llama.cpp's own error", OVER_STOCK),
            ("q8_0, of llama.cpp's own error", OVER_STOCK),
        ];
        let checks = names.iter().zip(worst);
        let reasons = checks
            .clone()
            .map(|((name, most), worst)| {
                let holds = if worst <= *most { "ok" } else { "FAILED" };
                format!("{holds}: {name}: {worst:.3} <= {most}")
            })
            .collect();
        let passes = checks.clone().all(|((_, most), worst)| worst <= *most);
        let last = points
            .iter()
            .rfind(|errors| errors.point.series == ShiftSeries::Count);
        let a_move = last.map_or(f64::NAN, |last| {
            last.f16 / f64::from(last.point.count).sqrt()
        });
        ShiftReport {
            verdict: if passes { Verdict::Pass } else { Verdict::Fail },
            reasons,
            keys,
            q8_0_stored,
            f16_stored,
            moves_to_q8_0: (q8_0_stored / a_move).powi(2),
            points,
        }
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
