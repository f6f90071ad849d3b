//! What NVIDIA's driver says of its cards. It is loaded when it is asked, so that a machine without one is no error.

mod memory;

use std::sync::OnceLock;
use std::time::Instant;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute};

use crate::error::CudaError;
use memory::{Card, DeviceBytes, PinnedBytes};

/// Copies of one measurement of the link; the fastest counts.
const COPIES: usize = 5;

/// Fewer bytes measure the call, not the link.
const BYTES_MIN: usize = 4096;

/// The driver of this machine and the cards that it knows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CudaDriver {
    /// Highest version of CUDA that it runs, such as `13.0`.
    pub version: Option<String>,
    /// The cards, by their number.
    pub cards: Vec<CudaCard>,
    /// Why there is no card.
    pub reason: Option<String>,
}

/// A card.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaCard {
    /// Its number. llama.cpp calls card 0 `CUDA0`.
    pub ordinal: u32,
    /// What the maker calls it.
    pub name: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// What is free of it now, where the driver says it.
    pub free_bytes: Option<u64>,
    /// Compute capability, such as 9 and 0.
    pub capability: (u32, u32),
}

/// What a card's link was measured to carry, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CudaLink {
    /// From pinned memory to the card.
    pub to_device_pinned_bytes_per_s: f64,
    /// From ordinary memory to the card.
    pub to_device_pageable_bytes_per_s: f64,
    /// From the card to pinned memory.
    pub to_host_pinned_bytes_per_s: f64,
    /// From the card to ordinary memory.
    pub to_host_pageable_bytes_per_s: f64,
}

impl CudaDriver {
    /// Asks the driver. Where there is none, or it does not start, the list of cards is empty and `reason` says why.
    #[must_use]
    pub fn find() -> Self {
        let none = |version, reason| Self {
            version,
            cards: Vec::new(),
            reason: Some(reason),
        };
        if let Err(reason) = started() {
            return none(None, reason);
        }
        let version = version();
        match cards() {
            Ok(cards) if cards.is_empty() => none(version, "the CUDA driver knows no card".into()),
            Ok(cards) => Self {
                version,
                cards,
                reason: None,
            },
            Err(error) => none(version, error.to_string()),
        }
    }
}

impl CudaCard {
    /// Measures the link of card `ordinal` with copies of `bytes`, from pinned and from ordinary memory, each way. Takes a few
    /// tenths of a second, and `bytes` of the card's memory meanwhile.
    ///
    /// # Errors
    /// Without a driver or such a card, with fewer than 4096 bytes, or when the memory is not there.
    pub fn measure_link(ordinal: u32, bytes: usize) -> Result<CudaLink, CudaError> {
        if bytes < BYTES_MIN {
            return Err(CudaError::Bytes { bytes });
        }
        started().map_err(|reason| CudaError::NoDriver { reason })?;
        let card = Card::take(ordinal)?;
        let device = DeviceBytes::new(&card, bytes)?;
        let mut pinned = PinnedBytes::new(&card, bytes)?;
        let mut pageable = vec![1_u8; bytes];
        Ok(CudaLink {
            to_device_pinned_bytes_per_s: rate(bytes, || device.write(pinned.bytes()))?,
            to_device_pageable_bytes_per_s: rate(bytes, || device.write(&pageable))?,
            to_host_pinned_bytes_per_s: rate(bytes, || device.read(pinned.bytes()))?,
            to_host_pageable_bytes_per_s: rate(bytes, || device.read(&mut pageable))?,
        })
    }
}

/// Bytes per second of the fastest copy; a first one warms up and does not count.
fn rate(bytes: usize, mut copy: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    copy()?;
    let mut least = f64::INFINITY;
    for _ in 0..COPIES {
        let started = Instant::now();
        copy()?;
        least = least.min(started.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / least.max(1e-9))
}

/// Loads and starts the driver, once a process.
fn started() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED
        .get_or_init(|| {
            // SAFETY: loads the driver's library, whose constructors the CUDA module would run as well.
            if !unsafe { sys::is_culib_present() } {
                return Err("there is no CUDA driver (libcuda.so.1) on this machine".into());
            }
            result::init()
                .map_err(|error| format!("the CUDA driver does not start: {}", said(error)))
        })
        .clone()
}

fn version() -> Option<String> {
    let mut version = 0;
    // SAFETY: the pointer is to a variable that outlives the call, and the driver is loaded.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    answer.result().ok()?;
    Some(format!("{}.{}", version / 1000, version % 1000 / 10))
}

fn cards() -> Result<Vec<CudaCard>, CudaError> {
    let count = result::device::get_count().map_err(refused("count its cards"))?;
    (0..count.unsigned_abs()).map(card).collect()
}

fn card(ordinal: u32) -> Result<CudaCard, CudaError> {
    let device = device(ordinal)?;
    let attribute = |which| {
        // SAFETY: the device was answered by the driver.
        unsafe { result::device::get_attribute(device, which) }
            .map(i32::unsigned_abs)
            .map_err(refused("name the compute capability"))
    };
    Ok(CudaCard {
        ordinal,
        name: result::device::get_name(device).map_err(refused("name a card"))?,
        // SAFETY: as above.
        total_bytes: unsafe { result::device::total_mem(device) }
            .map_err(refused("tell the memory of a card"))? as u64,
        free_bytes: Card::take(ordinal).and_then(|card| card.free_bytes()).ok(),
        capability: (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
    })
}

/// The driver's handle of a card.
fn device(ordinal: u32) -> Result<sys::CUdevice, CudaError> {
    let cards = result::device::get_count().map_err(refused("count its cards"))?;
    match i32::try_from(ordinal) {
        Ok(number) if number < cards => result::device::get(number).map_err(refused("open a card")),
        _ => Err(CudaError::NoCard {
            ordinal,
            cards: cards.unsigned_abs(),
        }),
    }
}

fn refused(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Driver {
        what,
        reason: said(error),
    }
}

/// What the driver says of an error.
fn said(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("error {}", error.0 as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cards_there_is_a_reason_and_with_them_each_is_described() {
        let driver = CudaDriver::find();
        assert_eq!(driver.cards.is_empty(), driver.reason.is_some());
        assert_eq!(driver, CudaDriver::find());
        for card in &driver.cards {
            assert!(!card.name.is_empty() && card.total_bytes > 0 && card.capability.0 > 0);
        }
    }

    #[test]
    fn a_card_that_is_not_there_is_no_panic() {
        let error = CudaCard::measure_link(4000, 1 << 20).unwrap_err();
        assert!(
            matches!(error, CudaError::NoDriver { .. } | CudaError::NoCard { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("next:"));
    }

    #[test]
    fn too_few_bytes_are_refused_before_anything_is_loaded() {
        assert_eq!(
            CudaCard::measure_link(0, 100).unwrap_err(),
            CudaError::Bytes { bytes: 100 }
        );
    }

    #[test]
    fn the_fastest_copy_counts_and_a_failed_one_ends_it() {
        let mut copies = 0;
        let found = rate(1_000_000, || {
            copies += 1;
            Ok(())
        });
        assert!(found.is_ok_and(|rate| rate > 0.0) && copies == COPIES + 1);
        let failed = rate(1, || Err(CudaError::Bytes { bytes: 1 }));
        assert_eq!(failed, Err(CudaError::Bytes { bytes: 1 }));
    }
}
