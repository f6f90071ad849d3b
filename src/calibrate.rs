//! Measuring what a machine does, for plans.

use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::context_params::KvType;
use crate::cuda::CudaCard;
use crate::device::Device;
use crate::error::Failure;
use crate::host;
use crate::plan::Rates;
use crate::probe::{Probe, ProbeKind, ProbeRun};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of K and V that the host's kernel is measured over: more than caches hold.
const KERNEL_BYTES: u64 = 192 * MIB;

/// Values of K and V of a cell in a measurement of the kernel, as in `kernels/src/rkv-probe-graph.cpp`.
const KERNEL_VALUES: u64 = 2 * 8 * 128;

/// A run of products takes so long at the least, in seconds.
const MATRIX_S: f64 = 5e-3;
const MATRIX_MOST: u64 = 256;

/// Nobody waits longer for a link than this to learn its latency, in seconds.
const LATENCY_MOST_S: f64 = 1.0;

/// What was measured of one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Measured {
    /// What, in words.
    pub what: String,
    /// The unit of `value`: `GB/s`, `us`, `us/node` or `TFLOP/s`.
    pub unit: String,
    /// The middle one of the runs.
    pub value: f64,
    /// The best one.
    pub best: f64,
    /// Runs.
    pub runs: usize,
    /// The time of the slowest run over that of the fastest, less 1.
    pub spread: f64,
}

/// What a machine does, with how it was found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// For plans.
    pub rates: Rates,
    /// Each of them as it was measured.
    pub measured: Vec<Measured>,
    /// Whether the device's time is a reckoned one.
    pub reckoned: bool,
    /// What makes a rate doubtful.
    pub warnings: Vec<String>,
}

/// How to measure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CalibrateParams {
    /// Threads of the host.
    pub threads: u32,
    /// Runs of each measurement.
    pub repeats: usize,
    /// Types whose rate is measured in the host's kernel.
    pub types: Vec<KvType>,
    /// A spread above this is warned of.
    pub noisy: f64,
    /// What a device that reckons its time reckons the host's kernel to read; the kernel is then not measured.
    pub host_kernel_bytes_per_s: Option<f64>,
}

impl CalibrateParams {
    /// Seven runs over the usual types.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        Self {
            threads,
            repeats: 7,
            types: vec![
                KvType::F16,
                KvType::Bf16,
                KvType::Q8_0,
                KvType::Q5_1,
                KvType::Q4_0,
            ],
            noisy: 0.25,
            host_kernel_bytes_per_s: None,
        }
    }
}

/// Runs of one measurement, the fastest first.
struct Runs {
    seconds: Vec<f64>,
    amount: f64,
    reckoned: bool,
}

impl Runs {
    fn middle(&self) -> f64 {
        self.seconds
            .get(self.seconds.len() / 2)
            .copied()
            .unwrap_or(0.0)
    }

    fn least(&self) -> f64 {
        self.seconds.first().copied().unwrap_or(0.0)
    }

    fn spread(&self) -> f64 {
        let most = self.seconds.last().copied().unwrap_or(0.0);
        if self.least() > 0.0 {
            most / self.least() - 1.0
        } else {
            0.0
        }
    }
}

struct Calibrator<'a> {
    probe: Probe,
    params: &'a CalibrateParams,
    /// The CUDA driver's number of the device.
    card: Option<u32>,
    progress: &'a mut dyn FnMut(&str, f64),
    done: f64,
    steps: f64,
    found: Calibration,
}

/// Measures the link to a device, the device, and the host; of the host alone where there is no device. `progress` is told what is being
/// measured and the share of the whole that is done.
///
/// # Errors
/// When a device fails, or there is no memory to measure with.
pub fn calibrate(
    backend: Backend,
    device: Option<Device>,
    params: &CalibrateParams,
    mut progress: impl FnMut(&str, f64),
) -> Result<Calibration, Failure> {
    let free = device.map_or(0, |device| device.memory_bytes().0);
    let mut all = Calibrator {
        probe: Probe::new(backend, device, params.threads)?,
        params,
        card: device.and_then(cuda_ordinal),
        progress: &mut progress,
        done: 0.0,
        steps: params.types.len() as f64 + if device.is_some() { 9.0 } else { 1.0 },
        found: Calibration {
            rates: Rates {
                device_bytes: free,
                host_bytes: host::available_bytes().unwrap_or(0),
                ..Rates::default()
            },
            measured: Vec::new(),
            reckoned: false,
            warnings: Vec::new(),
        },
    };
    if device.is_some() {
        all.link(free)?;
        all.device(free)?;
    }
    all.host()?;
    (all.progress)("done", 1.0);
    Ok(all.found)
}

/// The number of a device that the CUDA backend offers.
fn cuda_ordinal(device: Device) -> Option<u32> {
    device.name().strip_prefix("CUDA")?.parse().ok()
}

impl Calibrator<'_> {
    fn runs(&mut self, kind: ProbeKind) -> Result<Runs, Failure> {
        let mut runs = Runs {
            seconds: Vec::new(),
            amount: 0.0,
            reckoned: false,
        };
        for _ in 0..self.params.repeats.max(1) {
            let ProbeRun {
                seconds,
                amount,
                reckoned,
            } = self.probe.run(kind)?;
            runs.seconds.push(seconds);
            (runs.amount, runs.reckoned) = (amount, reckoned);
            if reckoned || amount == 0.0 || seconds > LATENCY_MOST_S {
                break; // the next ones would say the same, or take too long
            }
        }
        runs.seconds.sort_by(f64::total_cmp);
        self.found.reckoned |= runs.reckoned;
        Ok(runs)
    }

    fn step(&mut self, what: &str) {
        (self.progress)(what, self.done / self.steps);
        self.done += 1.0;
    }

    /// Notes what was found, in a unit of `scale`, and warns when its runs differ.
    fn note(&mut self, what: &str, unit: &str, scale: f64, value: f64, best: f64, runs: &Runs) {
        let spread = runs.spread();
        if spread > self.params.noisy {
            self.found.warnings.push(format!(
                "{what}: the slowest of {} runs took {:.0}% longer than the fastest; something else used the machine",
                runs.seconds.len(),
                100.0 * spread
            ));
        }
        self.found.measured.push(Measured {
            what: what.to_owned(),
            unit: unit.to_owned(),
            value: value / scale,
            best: best / scale,
            runs: runs.seconds.len(),
            spread,
        });
    }

    /// What comes each second, from runs of two sizes: what both take beside their bytes does not count.
    fn slope(
        &mut self,
        what: &str,
        kind: fn(u64) -> ProbeKind,
        (small, large): (u64, u64),
    ) -> Result<f64, Failure> {
        self.step(what);
        let short = self.runs(kind(small))?;
        let long = self.runs(kind(large))?;
        if long.amount == 0.0 {
            let warning = format!("{what}: the device has nothing to measure it with");
            self.found.warnings.push(warning);
            return Ok(0.0);
        }
        // A short run that something held up must not make the rate seem endless.
        let more = long.amount - short.amount;
        let rate = |short: f64, long: f64| more / (long - short.min(long / 2.0)).max(1e-12);
        let (value, best) = (
            rate(short.middle(), long.middle()),
            rate(short.least(), long.least()),
        );
        self.note(what, "GB/s", 1e9, value, best, &long);
        Ok(value)
    }

    fn link(&mut self, free: u64) -> Result<(), Failure> {
        let large = (free / 16).clamp(MIB, 64 * MIB);
        let sizes = (large / 16, large);
        let mut rates = [
            self.slope("host to device, pinned", ProbeKind::ToDevicePinned, sizes)?,
            self.slope(
                "host to device, pageable",
                ProbeKind::ToDevicePageable,
                sizes,
            )?,
            self.slope("device to host, pinned", ProbeKind::ToHostPinned, sizes)?,
            self.slope("device to host, pageable", ProbeKind::ToHostPageable, sizes)?,
        ];
        self.ask_driver(&mut rates, large);
        let found = &mut self.found.rates;
        [
            found.to_device_pinned_bytes_per_s,
            found.to_device_pageable_bytes_per_s,
            found.to_host_pinned_bytes_per_s,
            found.to_host_pageable_bytes_per_s,
        ] = rates;
        if found.to_device_pinned_bytes_per_s == 0.0 {
            found.to_device_pinned_bytes_per_s = found.to_device_pageable_bytes_per_s;
        }
        let bandwidth = found.to_device_pinned_bytes_per_s;

        self.step("latency of a copy");
        let kind = if rates[0] > 0.0 {
            ProbeKind::ToDevicePinned
        } else {
            ProbeKind::ToDevicePageable
        };
        let runs = self.runs(kind(4 * KIB))?;
        let of_bytes = runs.amount / bandwidth.max(1.0);
        let (value, best) = (
            (runs.middle() - of_bytes).max(0.0),
            (runs.least() - of_bytes).max(0.0),
        );
        self.note("latency of a copy", "us", 1e-6, value, best, &runs);
        self.found.rates.link_latency_s = value;
        Ok(())
    }

    /// Has the CUDA driver measure what the backend had nothing to measure with.
    fn ask_driver(&mut self, rates: &mut [f64; 4], bytes: u64) {
        let Some(ordinal) = self.card.filter(|_| rates.contains(&0.0)) else {
            return;
        };
        match CudaCard::measure_link(ordinal, bytes as usize) {
            Ok(link) => {
                let found = [
                    link.to_device_pinned_bytes_per_s,
                    link.to_device_pageable_bytes_per_s,
                    link.to_host_pinned_bytes_per_s,
                    link.to_host_pageable_bytes_per_s,
                ];
                for (rate, found) in rates.iter_mut().zip(found) {
                    if *rate == 0.0 {
                        *rate = found;
                    }
                }
            }
            Err(error) => self.found.warnings.push(error.to_string()),
        }
    }

    fn device(&mut self, free: u64) -> Result<(), Failure> {
        self.step("nodes of a graph");
        let (few, many) = (
            self.runs(ProbeKind::DeviceNodes(64))?,
            self.runs(ProbeKind::DeviceNodes(512))?,
        );
        let more = many.amount - few.amount;
        let of_node = |few: f64, many: f64| (many - few).max(0.0) / more.max(1.0);
        let (value, best) = (
            of_node(few.middle(), many.middle()),
            of_node(few.least(), many.least()),
        );
        self.note("a node of a graph", "us/node", 1e-6, value, best, &many);
        self.found.rates.device_launch_s = value;

        let large = (free / 16).clamp(MIB, 256 * MIB);
        let sizes = (large / 16, large);
        self.found.rates.device_memory_bytes_per_s =
            self.slope("device memory", ProbeKind::DeviceRead, sizes)?;
        let cells = (large / (KERNEL_VALUES * 2)).clamp(256, 16_384);
        let sizes = (cells / 4, cells);
        self.found.rates.device_attention_bytes_per_s =
            self.slope("attention on the device", ProbeKind::DeviceAttention, sizes)?;
        self.matrix()
    }

    fn matrix(&mut self) -> Result<(), Failure> {
        self.step("products for a prompt");
        let mut products = 1;
        loop {
            let started = std::time::Instant::now();
            let runs = self.runs(ProbeKind::DeviceMatrix(products))?;
            if runs.reckoned {
                return Ok(()); // such a device reckons bytes and no operations
            }
            if started.elapsed().as_secs_f64() >= MATRIX_S * self.params.repeats as f64
                || products >= MATRIX_MOST
            {
                let rate = |seconds: f64| runs.amount / seconds.max(1e-9);
                let (value, best) = (rate(runs.middle()), rate(runs.least()));
                self.note("products for a prompt", "TFLOP/s", 1e12, value, best, &runs);
                self.found.rates.device_flops = value;
                return Ok(());
            }
            products *= 4;
        }
    }

    fn host(&mut self) -> Result<(), Failure> {
        let types = self.params.types.clone();
        if let Some(rate) = self.params.host_kernel_bytes_per_s
            && self.found.reckoned
        {
            // Link and host are reckoned apart there, so that plain reads limit neither.
            let reckoned = types.into_iter().map(|of| (of, rate));
            self.found.rates.host_kernel_bytes_per_s.extend(reckoned);
            return Ok(());
        }
        self.step("host memory");
        let runs = self.runs(ProbeKind::HostRead(256 * MIB))?;
        let rate = |runs: &Runs, seconds: f64| runs.amount / seconds.max(1e-9);
        let (value, best) = (rate(&runs, runs.middle()), rate(&runs, runs.least()));
        self.note("host memory", "GB/s", 1e9, value, best, &runs);
        self.found.rates.host_read_bytes_per_s = value;
        for of in types {
            let what = format!("host attention over {of}");
            self.step(&what);
            let cells = (KERNEL_BYTES / of.bytes_of(KERNEL_VALUES).max(1)).next_multiple_of(4096);
            let runs = self.runs(ProbeKind::HostKernel(cells, of))?;
            let (value, best) = (rate(&runs, runs.middle()), rate(&runs, runs.least()));
            self.note(&what, "GB/s", 1e9, value, best, &runs);
            self.found.rates.host_kernel_bytes_per_s.push((of, value));
        }
        Ok(())
    }
}
