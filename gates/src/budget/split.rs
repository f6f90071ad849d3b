//! The exact lever: which layers to keep wholly on the device, and how many cells the others get, within one budget.

use serde::{Deserialize, Serialize};

/// How the budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Layers from the first on that lie wholly on the device.
    pub resident_layers: u32,
    /// Cells of each of the others in the window, in whole tiles.
    pub window_cells: u32,
}

/// What is to be split.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// Layers that hold K and V.
    pub layers: u32,
    /// Cells of each.
    pub cells: u32,
    /// K and V of one cell of one layer, in bytes.
    pub cell_bytes: u64,
    /// Cells of a tile.
    pub tile: u32,
}

impl Cache {
    /// Every split into first layers that are resident and others that share what is left of `budget` bytes: none of them resident,
    /// then as many as make a difference, up to all that fit. The first one keeps no layer resident.
    #[must_use]
    pub fn splits(&self, budget: u64) -> Vec<Split> {
        let layer_bytes = self.cell_bytes * u64::from(self.cells);
        let most =
            (budget / layer_bytes.max(1)).min(u64::from(self.layers.saturating_sub(1))) as u32;
        let mut found: Vec<Split> = Vec::new();
        for resident_layers in steps(most) {
            let left = budget - u64::from(resident_layers) * layer_bytes;
            let others = u64::from(self.layers - resident_layers);
            let cells = left / (self.cell_bytes * others).max(1);
            let cells = cells.min(u64::from(self.cells)) as u32 / self.tile * self.tile;
            found.push(Split {
                resident_layers,
                window_cells: cells,
            });
        }
        found
    }
}

/// 0, 1, 2, 4 .. and `most`.
fn steps(most: u32) -> Vec<u32> {
    let mut found = vec![0];
    let mut next = 1;
    while next < most {
        found.push(next);
        next *= 2;
    }
    if most > 0 {
        found.push(most);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: Cache = Cache {
        layers: 30,
        cells: 4096,
        cell_bytes: 768,
        tile: 128,
    };

    #[test]
    fn splits_spend_the_budget_and_no_more() {
        let budget = CACHE.cell_bytes * 4096 * 30 / 2;
        let splits = CACHE.splits(budget);
        assert_eq!(
            splits[0],
            Split {
                resident_layers: 0,
                window_cells: 2048
            }
        );
        assert!(splits.len() > 3);
        for split in splits {
            let resident = u64::from(split.resident_layers) * 4096;
            let others = u64::from(30 - split.resident_layers) * u64::from(split.window_cells);
            let spent = (resident + others) * CACHE.cell_bytes;
            assert!(spent <= budget);
            assert!(
                budget - spent < 30 * 128 * CACHE.cell_bytes,
                "{split:?} leaves a tile of a layer"
            );
        }
    }

    #[test]
    fn no_budget_leaves_no_window() {
        assert_eq!(
            CACHE.splits(0),
            [Split {
                resident_layers: 0,
                window_cells: 0
            }]
        );
    }

    #[test]
    fn steps_end_at_the_most() {
        assert_eq!(steps(0), [0]);
        assert_eq!(steps(1), [0, 1]);
        assert_eq!(steps(5), [0, 1, 2, 4, 5]);
    }
}
