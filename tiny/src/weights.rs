//! The weights, and the model that has them.

use rolling_kv::{Backend, LoadError, Model, ModelParams, UserModel};

use crate::random::Random;

/// The weights of one tensor: the same for the same name and seed.
pub fn weights(name: &str, seed: u64, values: &mut [f32]) {
    // The offset and the prime of FNV-1a, 64 bits.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::new(hash ^ seed.wrapping_mul(0x9E37_79B9));
    let norm = name.contains("norm");
    // The decay of a state-space layer must be negative.
    let decay = name.contains("ssm_a");
    for value in values {
        let fraction = random.fraction();
        *value = if norm {
            1.0 + 0.1 * fraction
        } else {
            0.4 * fraction
        };
        if decay {
            *value = -value.abs();
        }
    }
}

/// Finishes a description with random weights.
///
/// # Errors
/// When the description is incomplete, or the model does not fit where the parameters say.
pub fn fill(
    description: UserModel,
    backend: &Backend,
    params: &ModelParams,
    seed: u64,
) -> Result<Model, LoadError> {
    description.build(backend, params, |slot, values| {
        weights(&slot.name, seed, values);
    })
}
