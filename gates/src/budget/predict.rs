//! What a decode step takes when layers have tails of different lengths, reckoned from what a step takes without any and from the
//! link: the ring's rules, played through on paper.

/// What the steps run on.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// A step with every cell on the device, in milliseconds.
    pub compute_ms: f64,
    /// Bandwidth of the link, in bytes per millisecond.
    pub link_bytes_per_ms: f64,
    /// What a copy takes beside its bytes, in milliseconds.
    pub latency_ms: f64,
    /// Slots of the ring.
    pub slots: usize,
    /// Cells of a copy.
    pub copy_cells: u32,
}

/// A layer's tail as a step finds it.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// Cells of it that are in use.
    pub cells: u32,
    /// K and V of one cell, in bytes.
    pub cell_bytes: f64,
}

/// Steps until the ring runs as it will go on.
const STEPS: usize = 4;

impl Machine {
    /// Milliseconds of a step. Every layer is taken to compute for as long as any other, and reads its copies in order, each for its
    /// share of that time; a copy starts when the one before it has ended and its slot is free. The rows of the step itself, which wait for
    /// their layer, are few.
    #[must_use]
    pub fn step_ms(&self, tails: &[Tail]) -> f64 {
        let layer_ms = self.compute_ms / tails.len().max(1) as f64;
        let mut link_free = 0.0;
        let mut released = Vec::new();
        let mut now = 0.0;
        let mut step_began = 0.0;
        for _ in 0..STEPS {
            step_began = now;
            for tail in tails {
                let copies = tail.cells.div_ceil(self.copy_cells.max(1));
                for copy in 0..copies {
                    let cells = (tail.cells - copy * self.copy_cells).min(self.copy_cells);
                    let slot_free = released
                        .len()
                        .checked_sub(self.slots.max(1))
                        .map_or(0.0, |at: usize| released[at]);
                    let starts = f64::max(link_free, slot_free);
                    let bytes = f64::from(cells) * tail.cell_bytes;
                    link_free = starts + self.latency_ms + bytes / self.link_bytes_per_ms;
                    now = f64::max(now, link_free) + layer_ms / f64::from(copies);
                    released.push(now);
                }
                if copies == 0 {
                    now += layer_ms;
                }
            }
        }
        now - step_began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            compute_ms: 10.0,
            link_bytes_per_ms: 1e6,
            latency_ms: 0.0,
            slots: 4,
            copy_cells: 100,
        }
    }

    fn tails(cells: &[u32]) -> Vec<Tail> {
        cells
            .iter()
            .map(|&cells| Tail {
                cells,
                cell_bytes: 1000.0,
            })
            .collect()
    }

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 0.01 * expected,
            "{found} {expected}"
        );
    }

    #[test]
    fn without_a_tail_a_step_computes() {
        near(machine().step_ms(&tails(&[0; 10])), 10.0);
    }

    #[test]
    fn a_short_tail_is_hidden_and_a_long_one_is_what_counts() {
        near(machine().step_ms(&tails(&[500; 10])), 10.0);
        near(machine().step_ms(&tails(&[3000; 10])), 30.0);
    }

    #[test]
    fn one_slot_hides_less_than_many() {
        let one = Machine {
            slots: 1,
            ..machine()
        };
        assert!(one.step_ms(&tails(&[900; 10])) > 1.2 * machine().step_ms(&tails(&[900; 10])));
    }

    #[test]
    fn every_step_takes_at_least_its_longer_part_and_at_most_both() {
        for seed in 0..200u32 {
            let cells: Vec<u32> = (0..12).map(|at| (seed * 37 + at * 811) % 1500).collect();
            let copy_ms = f64::from(cells.iter().sum::<u32>()) * 1000.0 / 1e6;
            for slots in [1, 2, 8, 64] {
                let machine = Machine { slots, ..machine() };
                let step = machine.step_ms(&tails(&cells));
                assert!(
                    step >= copy_ms.max(10.0) * 0.999,
                    "{cells:?} {step} {copy_ms}"
                );
                assert!(
                    step <= (copy_ms + 10.0) * 1.001,
                    "{cells:?} {step} {copy_ms}"
                );
            }
        }
    }
}
