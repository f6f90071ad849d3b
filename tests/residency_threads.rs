//! Thread counts, also above the number of cores, in a program of their own: threads of several contexts that share a few cores wait
//! for each other without end.

mod common;

#[path = "residency/random.rs"]
mod random; // whatever is drawn, threads included

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "residency/twins.rs"]
mod twins;

use common::{backend, tiny};
use rolling_kv::{ContextParams, RollingKv};
use twins::{assert_same_bits, prompt_and_decode, resident, spilled};

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64)
}

#[test]
fn the_thread_count_does_not_change_the_bits() {
    let backend = backend();
    let model = tiny::model(&backend);
    let expected = prompt_and_decode(&mut resident(&model, &params().threads(1)), 0, 300);
    for threads in [2, 3, 5] {
        let mut context = spilled(
            &model,
            &params().threads(threads),
            RollingKv::window_cells(64),
        );
        assert_same_bits(
            &prompt_and_decode(&mut context, 0, 300),
            &expected,
            &format!("{threads} threads"),
        );
    }
}
