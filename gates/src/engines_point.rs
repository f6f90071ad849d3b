//! A tail behind a link: what every engine did with it, and the bounds of theory.

use serde::{Deserialize, Serialize};

use crate::error::GateError;

/// What link and host bring in bytes per second, as set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Of the device's link.
    pub link_bytes_per_s: f64,
    /// Of the host's kernel, in bytes of K and V.
    pub host_bytes_per_s: f64,
}

impl Rates {
    /// A step in which link and host end together, in milliseconds: the link brings tiles for all of it, the host reads while it does
    /// not compute.
    pub(crate) fn both_ms(self, compute_ms: f64, tail_bytes: f64) -> f64 {
        let host_ms = tail_bytes / self.host_bytes_per_s * 1e3;
        (compute_ms + host_ms) / (1.0 + self.link_bytes_per_s / self.host_bytes_per_s)
    }
}

/// What one engine did with a tail.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EngineRun {
    /// A step, mean, in milliseconds.
    pub ms: f64,
    /// Bytes that a step brings to the device.
    pub link_bytes: f64,
    /// Bytes of K and V that the host reads in a step.
    pub host_bytes: f64,
    /// The host's share of the tail as it was chosen last, 0 to 1.
    pub host_share: f64,
    /// Tiles that the host attended to, those while the split settles too.
    pub tiles_host: u64,
    /// Whether every logit has the bits that it has with every cell on the device.
    pub bits_equal: bool,
}

/// One tail behind one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnginesPoint {
    /// Cells of each layer in the window.
    pub window_cells: u32,
    /// Bytes of the tail that a step reads.
    pub tail_bytes: f64,
    /// A step with every cell on the device, in milliseconds.
    pub compute_ms: f64,
    /// What the link takes for the tail by its set rate, in milliseconds.
    pub link_ms: f64,
    /// What the host takes for the tail by its set rate, in milliseconds.
    pub host_ms: f64,
    /// The least that link and host together can take, in milliseconds: (C + T/H)/(1 + L/H), or C where copying is hidden.
    pub bound_ms: f64,
    /// The device alone.
    pub stream: EngineRun,
    /// The host alone.
    pub host: EngineRun,
    /// Both.
    pub hybrid: EngineRun,
    /// What is chosen by what the steps show.
    pub auto: EngineRun,
}

impl EnginesPoint {
    /// Stream, host, hybrid and auto over the same tail, which is what the host reads when it reads all of it.
    pub(crate) fn new(
        rates: Rates,
        window_cells: u32,
        compute_ms: f64,
        runs: [EngineRun; 4],
    ) -> Result<Self, GateError> {
        let [stream, host, hybrid, auto] = runs;
        let idle = |run: EngineRun| run.tiles_host == 0;
        if stream.link_bytes == 0.0 || idle(host) || idle(hybrid) {
            return Err(GateError::NotEngaged);
        }
        let tail_bytes = host.host_bytes;
        let link_ms = tail_bytes / rates.link_bytes_per_s * 1e3;
        let host_ms = tail_bytes / rates.host_bytes_per_s * 1e3;
        Ok(Self {
            window_cells,
            tail_bytes,
            compute_ms,
            link_ms,
            host_ms,
            bound_ms: if link_ms > compute_ms {
                rates.both_ms(compute_ms, tail_bytes)
            } else {
                compute_ms
            },
            stream,
            host,
            hybrid,
            auto,
        })
    }

    /// The longer of computing and copying.
    #[must_use]
    pub fn longer_ms(&self) -> f64 {
        self.compute_ms.max(self.link_ms)
    }

    /// Computing and the host's reading, one after the other.
    #[must_use]
    pub fn sum_ms(&self) -> f64 {
        self.compute_ms + self.host_ms
    }

    /// The better of the link alone and the host alone.
    #[must_use]
    pub fn better_ms(&self) -> f64 {
        self.stream.ms.min(self.host.ms)
    }

    pub(crate) fn runs(&self) -> [EngineRun; 4] {
        [self.stream, self.host, self.hybrid, self.auto]
    }

    /// What the letters in [`Self::HEAD`] are.
    pub const LEGEND: &str = "T: bytes of the tail; L, H: bytes per second of the link and of the host; C: what a step computes; host's %: of the hybrid's tail; bound: (C + T/H)/(1 + L/H), or C where T < L*C; over: the hybrid over the bound, and over the better of stream and host";

    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 12] = [
        "window",
        "tail MiB",
        "T/L ms",
        "T/H ms",
        "stream ms",
        "host ms",
        "hybrid ms",
        "auto ms",
        "host's %",
        "bound ms",
        "over bound",
        "over other",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 12] {
        const MIB: f64 = 1_048_576.0;
        let ms = |value: f64| format!("{value:.2}");
        [
            self.window_cells.to_string(),
            ms(self.tail_bytes / MIB),
            ms(self.link_ms),
            ms(self.host_ms),
            ms(self.stream.ms),
            ms(self.host.ms),
            ms(self.hybrid.ms),
            ms(self.auto.ms),
            format!("{:.0}", 100.0 * self.hybrid.host_bytes / self.tail_bytes),
            ms(self.bound_ms),
            format!("{:.3}", self.hybrid.ms / self.bound_ms),
            format!("{:.3}", self.hybrid.ms / self.better_ms()),
        ]
    }
}

/// Every tail behind one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnginesLink {
    /// Of the link and of the host.
    pub rates: Rates,
    /// Whether the device reckons its time.
    pub reckoned: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// A step with every cell on the device, in milliseconds.
    pub compute_ms: f64,
    /// The tails, in the order in which they were asked for.
    pub points: Vec<EnginesPoint>,
}

impl EnginesLink {
    /// What it is, in words.
    #[must_use]
    pub fn title(&self) -> String {
        format!(
            "link {} GB/s, host {} GB/s; a step computes for {:.2} ms",
            self.rates.link_bytes_per_s / 1e9,
            self.rates.host_bytes_per_s / 1e9,
            self.compute_ms
        )
    }
}

#[cfg(test)]
impl Rates {
    pub(crate) fn for_tests() -> Self {
        Self {
            link_bytes_per_s: 1e9,
            host_bytes_per_s: 3e9,
        }
    }
}

#[cfg(test)]
impl EnginesPoint {
    /// A step computes for 4 ms and has 24 MB of tail; the times are those of stream, host, hybrid and auto. With the rates for tests
    /// the link takes 24 ms for the tail, the host 8, and both together 9.
    pub(crate) fn for_tests(rates: Rates, ms: [f64; 4]) -> Result<Self, GateError> {
        let shares = [0.0, 1.0, 0.625, 0.625];
        let run = |at: usize| EngineRun {
            ms: ms[at],
            link_bytes: 24e6 * (1.0 - shares[at]),
            host_bytes: 24e6 * shares[at],
            host_share: shares[at],
            tiles_host: (1000.0 * shares[at]) as u64,
            bits_equal: true,
        };
        Self::new(rates, 128, 4.0, [run(0), run(1), run(2), run(3)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: [f64; 4] = [24.0, 12.0, 9.0, 9.0];

    #[test]
    fn the_bound_is_that_of_both_together_and_no_less_than_computing() {
        let point = EnginesPoint::for_tests(Rates::for_tests(), MS).unwrap();
        assert_eq!((point.link_ms, point.host_ms), (24.0, 8.0));
        assert!((point.bound_ms - 9.0).abs() < 1e-12, "{point:?}");
        assert_eq!((point.longer_ms(), point.sum_ms()), (24.0, 12.0));
        let fast = Rates {
            link_bytes_per_s: 1e10,
            ..Rates::for_tests()
        };
        let hidden = EnginesPoint::for_tests(fast, MS).unwrap();
        assert_eq!((hidden.bound_ms, hidden.longer_ms()), (4.0, 4.0));
    }

    #[test]
    fn who_did_nothing_proves_nothing() {
        let rates = Rates::for_tests();
        let point = EnginesPoint::for_tests(rates, MS).unwrap();
        for idle in 0..3 {
            let mut runs = point.runs();
            runs[idle].tiles_host = 0;
            runs[idle].link_bytes = 0.0;
            let made = EnginesPoint::new(rates, 128, 4.0, runs);
            assert!(matches!(made, Err(GateError::NotEngaged)), "{idle}");
        }
    }
}
