//! What a target in device memory has to do with the cards that are there.

use rolling_kv::{Backend, CudaDriver};

const MIB: u64 = 1 << 20;

/// Backend of NVIDIA's cards, as ggml names it.
const CARDS: &str = "CUDA";

/// Says so, before anything is loaded, when a target is larger than what the driver has free.
pub fn look(backend: &Backend, target_mib: Option<u64>) {
    let on_cards = backend
        .devices()
        .iter()
        .any(|device| device.backend() == CARDS);
    let Some(target) = target_mib.filter(|_| on_cards) else {
        return;
    };
    let free: Vec<u64> = CudaDriver::find()
        .cards
        .iter()
        .filter_map(|card| card.free_bytes)
        .collect();
    if let Some(said) = over_free_memory(target, &free) {
        tracing::warn!("{said}");
    }
}

/// Why a cache of `target_mib` cannot lie on cards with so many bytes free; `None`: nothing speaks against it, or nothing is known.
fn over_free_memory(target_mib: u64, free: &[u64]) -> Option<String> {
    let sum = free.iter().sum::<u64>() / MIB;
    let place = match free.len() {
        0 => return None,
        1 => "the card",
        _ => "the cards",
    };
    (target_mib > sum).then(|| {
        format!(
            "--vram-target asks for {target_mib} MiB of cache, and {sum} MiB are free on {place}, for the weights too; \
             without a target the window fills what is free"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_compared_with_what_is_free_on_all_cards() {
        let said = |target, free: &[u64]| {
            let bytes: Vec<u64> = free.iter().map(|mib| mib * MIB).collect();
            over_free_memory(target, &bytes)
        };
        assert_eq!(said(30_000, &[]), None);
        assert_eq!(said(20_000, &[20_000]), None);
        assert_eq!(said(30_000, &[20_000, 10_000]), None);
        let text = said(20_001, &[20_000]).unwrap();
        assert!(text.contains("20001 MiB") && text.contains("20000 MiB are free on the card,"));
    }
}
