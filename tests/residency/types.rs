use rolling_kv::{ContextError, ContextParams, FlashAttention, KvType, Model, RollingKv};

use crate::common::tiny::Shape;
use crate::common::{backend, some_tokens, tiny};
use crate::twins::Twins;

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

fn refusal(model: &Model, params: &ContextParams) -> ContextError {
    let spill = RollingKv::window_cells(128);
    let error = model.context(&params.clone().rolling_kv(spill));
    error
        .map(drop)
        .expect_err("the parameters contradict each other")
}

fn still_makes_a_context(model: &Model) {
    let mut twins = Twins::new(model, &params(), RollingKv::window_cells(64));
    twins.append("after a refusal", 0, &some_tokens(100, 1));
    twins.assert_spilled("after a refusal");
}

/// Flash attention that was left open saw a cache on the host and went off for the whole model
/// (lmstudio-ai/lmstudio-bug-tracker#1454): it stays on, and no full-size cache comes back in its place.
#[test]
fn flash_attention_stays_on_for_every_kind_of_model() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for window in [0, 64, 512] {
            let params = params().flash_attention(FlashAttention::Auto);
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(name, 0, &some_tokens(100, 1));
            assert!(twins.spilled.uses_flash_attention(), "{name}, {window}");
            let residency = twins.spilled.residency();
            for layer in residency.layers.iter().filter(|layer| !layer.sliding) {
                let all = layer.device_bytes + layer.host_bytes;
                assert_eq!(
                    layer.device_bytes,
                    all * u64::from(window.min(layer.kv_size)) / u64::from(layer.kv_size),
                    "{name}, window {window}"
                );
            }
        }
    }
}

/// A quantised V without flash attention was found out too late (ggml-org/llama.cpp#28524, #10378): refused before
/// anything is made, naming both options, and the model makes the next context.
#[test]
fn a_quantised_v_without_flash_attention_is_refused_with_a_window_too() {
    let backend = backend();
    let model = tiny::model(&backend);
    let wrong = params()
        .cache_types(KvType::F16, KvType::Q8_0)
        .flash_attention(FlashAttention::Off);
    let text = refusal(&model, &wrong).to_string();
    assert!(
        text.contains("type_v = q8_0") && text.contains("flash_attention"),
        "{text}"
    );
    still_makes_a_context(&model);
}

/// V is a part of K's row in a latent cache, and its stride was lost when it was converted
/// (ikawrakow/ik_llama.cpp#400): quantised, in two parts.
#[test]
fn a_quantised_latent_cache_gives_the_bits_of_the_resident_one() {
    let backend = backend();
    let model = tiny::latent(&backend);
    for kv in [
        KvType::F16,
        KvType::Bf16,
        KvType::Q8_0,
        KvType::Q5_1,
        KvType::Q4_0,
    ] {
        for window in [0, 96, 256] {
            let what = format!("{kv}, window {window}");
            let params = params().cache_types(kv, kv);
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(&what, 0, &some_tokens(300, 1));
            for step in 0..3 {
                twins.append(&what, 0, &some_tokens(1, 2 + step));
            }
            if window > 0 {
                twins.assert_spilled(&what);
            }
        }
    }
}

/// A retry with another type broke the next rule (unslothai/unsloth#8827): the first cause is named, each type alone
/// works, and nothing is changed on its own.
#[test]
fn a_latent_cache_with_two_types_is_refused_by_name() {
    let backend = backend();
    let model = tiny::latent(&backend);
    for (k, v) in [(KvType::Q8_0, KvType::F16), (KvType::F16, KvType::Q8_0)] {
        let error = refusal(&model, &params().cache_types(k, v));
        assert!(
            matches!(error, ContextError::TypesMustBeEqual { type_k, type_v } if (type_k, type_v) == (k, v)),
            "{error}"
        );
    }
    still_makes_a_context(&model);
}

/// Heads that are not whole blocks of the type made rows of another size than was allocated
/// (ikawrakow/ik_llama.cpp#2419, Blaizzy/mlx-vlm#2061): refused before allocation, and whole blocks work in both parts.
#[test]
fn heads_must_be_whole_blocks_in_both_parts() {
    let backend = backend();
    let model_of = |head: u32| {
        let shape = Shape {
            n_embd: 2 * head,
            ..Shape::default()
        };
        tiny::model_of(&backend, &shape)
    };
    let (eighty, ninety_six) = (model_of(80), model_of(96));
    for kv in [KvType::Q8_0, KvType::Q4_0] {
        let params = params().cache_types(kv, kv);
        let error = refusal(&eighty, &params);
        assert!(
            matches!(error, ContextError::HeadNotDivisible { head_dim: 80, .. }),
            "{error}"
        );
        let mut twins = Twins::new(&ninety_six, &params, RollingKv::window_cells(33));
        twins.append("whole blocks", 0, &some_tokens(120, 1));
        twins.append("whole blocks", 0, &some_tokens(1, 2));
        twins.assert_spilled("whole blocks");
    }
    let mut twins = Twins::new(&eighty, &params(), RollingKv::window_cells(33));
    twins.append("no blocks", 0, &some_tokens(120, 1));
    twins.assert_spilled("no blocks");
}
