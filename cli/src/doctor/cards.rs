//! What NVIDIA's driver says of its cards, and what their links carry.

use std::fmt::{self, Display, Formatter};

use rolling_kv::{CudaCard, CudaDriver};
use serde::Serialize;

use super::report::{line, size};

/// Bytes of a copy by which a link is measured.
const LINK_BYTES: usize = 64 << 20;

/// The driver and its cards.
#[derive(Serialize)]
pub struct CudaCards {
    /// Highest version of CUDA that the driver runs.
    pub driver_version: Option<String>,
    pub cards: Vec<Card>,
    /// Why there is no card.
    pub reason: Option<String>,
}

/// A card.
#[derive(Serialize)]
pub struct Card {
    pub ordinal: u32,
    pub name: String,
    pub capability: String,
    pub total_bytes: u64,
    pub free_bytes: Option<u64>,
    pub link: Option<Link>,
    /// Why the link was not measured.
    pub link_reason: Option<String>,
}

/// What a link carries.
#[derive(Serialize)]
pub struct Link {
    pub to_device_pinned_bytes_per_s: f64,
    pub to_device_pageable_bytes_per_s: f64,
    pub to_host_pinned_bytes_per_s: f64,
    pub to_host_pageable_bytes_per_s: f64,
}

/// Asks the driver, and measures the link of each card.
pub fn look() -> CudaCards {
    let driver = CudaDriver::find();
    CudaCards {
        driver_version: driver.version,
        cards: driver.cards.into_iter().map(measured).collect(),
        reason: driver.reason,
    }
}

fn measured(card: CudaCard) -> Card {
    let (link, link_reason) = match CudaCard::measure_link(card.ordinal, LINK_BYTES) {
        Ok(link) => (Some(link), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Card {
        ordinal: card.ordinal,
        name: card.name,
        capability: format!("{}.{}", card.capability.0, card.capability.1),
        total_bytes: card.total_bytes,
        free_bytes: card.free_bytes,
        link: link.map(|link| Link {
            to_device_pinned_bytes_per_s: link.to_device_pinned_bytes_per_s,
            to_device_pageable_bytes_per_s: link.to_device_pageable_bytes_per_s,
            to_host_pinned_bytes_per_s: link.to_host_pinned_bytes_per_s,
            to_host_pageable_bytes_per_s: link.to_host_pageable_bytes_per_s,
        }),
        link_reason,
    }
}

impl Display for CudaCards {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nCUDA driver")?;
        let version = self.driver_version.as_deref();
        line(f, "runs CUDA up to", version.unwrap_or("nothing"))?;
        if let Some(reason) = &self.reason {
            line(f, "no card", reason)?;
        }
        self.cards.iter().try_for_each(|card| card.fmt(f))
    }
}

impl Display for Card {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let free = self.free_bytes.map_or_else(|| "unknown".into(), size);
        let memory = format!("{free} free of {}", size(self.total_bytes));
        line(
            f,
            &format!("card {}", self.ordinal),
            format_args!("{}, capability {}, {memory}", self.name, self.capability),
        )?;
        match (&self.link, &self.link_reason) {
            (Some(link), _) => {
                let pair = |pinned: f64, pageable: f64| {
                    format!(
                        "{:.1} GB/s pinned, {:.1} GB/s pageable",
                        pinned / 1e9,
                        pageable / 1e9
                    )
                };
                let (pinned, pageable) = (
                    link.to_device_pinned_bytes_per_s,
                    link.to_device_pageable_bytes_per_s,
                );
                line(f, "  to the card", pair(pinned, pageable))?;
                let (pinned, pageable) = (
                    link.to_host_pinned_bytes_per_s,
                    link.to_host_pageable_bytes_per_s,
                );
                line(f, "  from the card", pair(pinned, pageable))
            }
            (None, reason) => line(f, "  link", reason.as_deref().unwrap_or("not measured")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(link: Option<Link>, reason: Option<&str>) -> Card {
        Card {
            ordinal: 1,
            name: "Card".into(),
            capability: "9.0".into(),
            total_bytes: 8 << 30,
            free_bytes: Some(6 << 30),
            link,
            link_reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn a_card_is_told_with_its_link_or_with_why_it_was_not_measured() {
        let link = Link {
            to_device_pinned_bytes_per_s: 25e9,
            to_device_pageable_bytes_per_s: 6e9,
            to_host_pinned_bytes_per_s: 24e9,
            to_host_pageable_bytes_per_s: 5e9,
        };
        let text = card(Some(link), None).to_string();
        for part in [
            "card 1",
            "capability 9.0",
            "25.0 GB/s pinned, 6.0",
            "24.0 GB/s pinned, 5.0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            card(None, Some("no memory"))
                .to_string()
                .contains("no memory")
        );
    }

    #[test]
    fn without_a_card_the_reason_is_said() {
        let found = look();
        assert_eq!(found.cards.is_empty(), found.reason.is_some());
        if let Some(reason) = &found.reason {
            assert!(found.to_string().contains(reason.as_str()));
        }
    }
}
