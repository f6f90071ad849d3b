//! Rows of K as a cache holds them, and what they would be when they were turned without error.

use rolling_kv::{KvType, LayerRope};

use crate::error::GateError;
use crate::stored_keys::floats;

/// Rows of K, token by token in each layer.
pub struct Keys {
    pub kv: KvType,
    pub rows: Vec<Vec<u8>>,
    /// How the layer of each row turns it.
    pub turns: Vec<Turn>,
}

/// How a layer turns a row; see [`LayerRope`].
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub head: usize,
    pub rotated: usize,
    pub offset: usize,
    pub halves: bool,
    pub plain: bool,
    pub base: f64,
    pub scale: f64,
}

impl From<&LayerRope> for Turn {
    fn from(rope: &LayerRope) -> Self {
        Self {
            head: rope.head as usize,
            rotated: rope.rotated as usize,
            offset: rope.offset as usize,
            halves: rope.halves,
            plain: rope.plain,
            base: rope.base.into(),
            scale: rope.scale.into(),
        }
    }
}

impl Keys {
    /// The rows as they are stored.
    pub fn floats(&self) -> Result<Vec<f32>, GateError> {
        let rows = self.rows.iter().map(|row| floats(self.kv, row));
        Ok(rows.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// A quantised cache spreads each head over a Hadamard matrix, as long as a power of two divides the head; that is its own inverse.
    pub fn unspread(&self) -> Result<Vec<f32>, GateError> {
        let mut all = Vec::new();
        for (row, how) in self.rows.iter().zip(&self.turns) {
            let mut row = floats(self.kv, row)?;
            let width = 1usize << how.head.trailing_zeros();
            if self.kv.is_quantised() && width >= 64 {
                row.chunks_exact_mut(width).for_each(hadamard);
            }
            all.extend(row);
        }
        Ok(all)
    }

    /// The rows turned by an angle in f64.
    pub fn turned(&self, position: f64) -> Result<Vec<f32>, GateError> {
        let mut all = Vec::new();
        for (row, how) in self.rows.iter().zip(&self.turns) {
            let mut row = floats(self.kv, row)?;
            for head in row.chunks_exact_mut(how.head) {
                turn(head, how, position);
            }
            all.extend(row);
        }
        Ok(all)
    }
}

fn turn(head: &mut [f32], how: &Turn, position: f64) {
    let pairs = how.rotated / 2;
    let offset = how.offset;
    for i in 0..pairs {
        let exponent = -2.0 * i as f64 / how.rotated as f64;
        let angle = position * how.scale * how.base.powf(exponent);
        let (left, right) = if how.halves {
            (i, i + pairs)
        } else {
            (2 * i, 2 * i + 1)
        };
        let (x, y) = (
            f64::from(head[offset + left]),
            f64::from(head[offset + right]),
        );
        head[offset + left] = (x * angle.cos() - y * angle.sin()) as f32;
        head[offset + right] = (x * angle.sin() + y * angle.cos()) as f32;
    }
}

/// The product with the normalised Hadamard matrix, in place. The length is a power of two.
fn hadamard(values: &mut [f32]) {
    let n = values.len();
    let mut half = 1;
    while half < n {
        for block in values.chunks_exact_mut(2 * half) {
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                (*x, *y) = (*x + *y, *x - *y);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (n as f32).sqrt();
    values.iter_mut().for_each(|value| *value *= scale);
}

/// How far two lists of channels are apart.
pub struct Difference {
    /// Root mean square over that of the reference.
    pub rms: f64,
    /// The largest.
    pub max: f64,
}

pub fn difference(found: &[f32], reference: &[f32]) -> Difference {
    let mut square = 0.0;
    let mut scale = 0.0;
    let mut max = 0.0f64;
    for (found, reference) in found.iter().zip(reference) {
        let apart = f64::from(*found) - f64::from(*reference);
        square += apart * apart;
        scale += f64::from(*reference) * f64::from(*reference);
        max = max.max(apart.abs());
    }
    Difference {
        rms: (square / scale.max(f64::MIN_POSITIVE)).sqrt(),
        max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hadamard_product_is_its_own_inverse_and_keeps_lengths() {
        let start: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin()).collect();
        let mut twice = start.clone();
        hadamard(&mut twice);
        assert!(difference(&twice, &start).rms > 0.5);
        let length = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>();
        assert!((length(&twice) / length(&start) - 1.0).abs() < 1e-5);
        hadamard(&mut twice);
        assert!(difference(&twice, &start).rms < 1e-6);
    }

    #[test]
    fn turns_add_up_in_both_orders_of_pairs() {
        for halves in [false, true] {
            let how = Turn {
                head: 8,
                rotated: 4,
                offset: 2,
                halves,
                plain: true,
                base: 10_000.0,
                scale: 1.0,
            };
            let start: Vec<f32> = (0..8).map(|i| i as f32 + 1.0).collect();
            let (mut once, mut twice) = (start.clone(), start.clone());
            turn(&mut once, &how, 30.0);
            turn(&mut twice, &how, 50.0);
            turn(&mut twice, &how, -20.0);
            assert!(difference(&twice, &once).rms < 1e-6);
            assert_eq!((once[0], once[1], once[6], once[7]), (1.0, 2.0, 7.0, 8.0));
            assert_ne!(once[2..6], start[2..6]);
        }
    }
}
