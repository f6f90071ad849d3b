use rolling_kv::{Attention, ContextError, ContextParams, FlashAttention, KvType, Model, Pooling};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};

/// The error that these parameters give. Afterwards the model must still make a context that works.
fn refusal(model: &Model, params: &ContextParams) -> ContextError {
    let error = model
        .context(params)
        .expect_err("the parameters are refused");
    let mut context = model
        .context(&ContextParams::new(256).threads(1))
        .expect("the model is still usable");
    logits_after(&mut context, 0, &some_tokens(3, 1));
    error
}

#[test]
fn zero_sizes_are_refused_by_name() {
    let model = tiny::model(&backend());
    let cases = [
        (ContextParams::new(256).n_batch(0), "n_batch"),
        (ContextParams::new(256).n_ubatch(0), "n_ubatch"),
        (ContextParams::new(256).n_seq_max(0), "n_seq_max"),
        (ContextParams::new(256).threads(0), "threads"),
        (
            ContextParams::new(256).threads(1).threads_batch(0),
            "threads_batch",
        ),
    ];
    for (params, name) in cases {
        assert!(
            matches!(refusal(&model, &params), ContextError::Zero { option } if option == name),
            "{name}"
        );
    }
}

#[test]
fn n_ctx_zero_means_the_trained_length() {
    let model = tiny::model(&backend());
    assert_eq!(model.context(&ContextParams::new(0)).unwrap().n_ctx(), 512);
    assert_eq!(
        model.context(&ContextParams::default()).unwrap().n_ctx(),
        512
    );
}

#[test]
fn odd_lengths_are_rounded_up_per_sequence() {
    let model = tiny::model(&backend());
    let n_ctx = |params: ContextParams| model.context(&params).unwrap().n_ctx();
    assert_eq!(n_ctx(ContextParams::new(1)), 256);
    assert_eq!(n_ctx(ContextParams::new(1000)), 1024);
    assert_eq!(n_ctx(ContextParams::new(1000).n_seq_max(3)), 3 * 512);
    assert_eq!(
        n_ctx(ContextParams::new(1000).n_seq_max(3).kv_unified()),
        1024
    );
}

#[test]
fn small_batches_and_large_ones_work_as_the_usual_one() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(70, 2);
    let run = |params: ContextParams| {
        logits_after(&mut model.context(&params.threads(1)).unwrap(), 0, &tokens)
    };
    let usual = run(ContextParams::new(256));
    for params in [
        ContextParams::new(256).n_batch(1),
        ContextParams::new(256).n_ubatch(1),
        ContextParams::new(256).n_batch(33).n_ubatch(7),
        ContextParams::new(256).n_batch(100_000).n_ubatch(50_000),
    ] {
        assert!(crate::common::nmse(&usual, &run(params)) < 1e-6);
    }
}

#[test]
fn a_batch_larger_than_the_context_is_cut_to_it() {
    let model = tiny::model(&backend());
    let context = model
        .context(&ContextParams::new(256).n_batch(4096).n_ubatch(2048))
        .unwrap();
    assert_eq!((context.n_batch(), context.n_ubatch()), (256, 256));
}

#[test]
fn too_many_sequences_are_refused() {
    let model = tiny::model(&backend());
    let error = refusal(&model, &ContextParams::new(1024).n_seq_max(300));
    assert!(
        matches!(
            error,
            ContextError::TooManySequences {
                asked: 300,
                max: 256
            }
        ),
        "{error}"
    );
    let context = model
        .context(&ContextParams::new(256).n_seq_max(256).kv_unified())
        .unwrap();
    assert_eq!(context.n_seq_max(), 256);
}

#[test]
fn a_batch_below_the_number_of_sequences_is_refused() {
    let model = tiny::model(&backend());
    let error = refusal(&model, &ContextParams::new(1024).n_seq_max(4).n_batch(3));
    assert!(
        matches!(
            error,
            ContextError::BatchBelowSequences {
                n_batch: 3,
                n_seq_max: 4
            }
        ),
        "{error}"
    );
    model
        .context(&ContextParams::new(1).n_seq_max(4))
        .expect("a short context still has room for an output each");
}

#[test]
fn too_many_threads_are_refused() {
    let model = tiny::model(&backend());
    let error = refusal(&model, &ContextParams::new(256).threads(u32::MAX));
    assert!(
        matches!(
            error,
            ContextError::TooManyThreads {
                option: "threads",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_absurd_length_is_refused_with_its_bytes() {
    let shape = Shape {
        n_embd: 512,
        n_head: 8,
        n_head_kv: 8,
        n_layer: 1,
        ..Shape::default()
    };
    let model = tiny::model_of(&backend(), &shape);
    for n_ctx in [1 << 30, i32::MAX as u32 - 255] {
        let error = refusal(&model, &ContextParams::new(n_ctx));
        let ContextError::NotEnoughMemory {
            cache_bytes,
            available_bytes,
            ..
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!(
            *cache_bytes,
            u64::from(n_ctx).next_multiple_of(256) * 512 * 2 * 2
        );
        assert!(cache_bytes > available_bytes);
        assert!(
            error.to_string().contains(&cache_bytes.to_string()),
            "{error}"
        );
    }
}

#[test]
fn more_tokens_than_positions_are_refused_with_their_bytes() {
    let model = tiny::model(&backend());
    for n_ctx in [i32::MAX as u32, 1 << 31, u32::MAX] {
        let error = refusal(&model, &ContextParams::new(n_ctx));
        let ContextError::TooLong { cache_bytes, .. } = error else {
            panic!("{error}")
        };
        assert!(cache_bytes > u64::from(n_ctx) * 128, "{cache_bytes}");
    }
}

#[test]
fn a_huge_context_of_a_tiny_model_is_refused_or_made_but_never_kills() {
    let model = tiny::model(&backend());
    for n_ctx in [(i32::MAX as u32 - 255), 1 << 30] {
        let error = model
            .context(&ContextParams::new(n_ctx))
            .expect_err("no test machine holds it");
        assert!(
            matches!(error, ContextError::NotEnoughMemory { .. }),
            "{error}"
        );
    }
}

#[test]
fn quantised_v_without_flash_attention_is_refused_naming_both() {
    let model = tiny::model(&backend());
    for kv_type in KvType::ALL
        .into_iter()
        .filter(|kv_type| kv_type.is_quantised())
    {
        let params = ContextParams::new(256)
            .cache_types(KvType::F16, kv_type)
            .flash_attention(FlashAttention::Off);
        let text = refusal(&model, &params).to_string();
        assert!(
            text.contains(&format!("type_v = {kv_type}")) && text.contains("flash_attention"),
            "{text}"
        );
    }
}

#[test]
fn every_pair_of_cache_types_works_with_flash_attention() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(24, 3);
    let reference = logits_after(
        &mut model.context(&ContextParams::new(256).threads(1)).unwrap(),
        0,
        &tokens,
    );
    for type_k in KvType::ALL {
        for type_v in KvType::ALL {
            for mode in [FlashAttention::On, FlashAttention::Auto] {
                let params = ContextParams::new(256)
                    .threads(1)
                    .cache_types(type_k, type_v)
                    .flash_attention(mode);
                let logits = logits_after(&mut model.context(&params).unwrap(), 0, &tokens);
                let distance = crate::common::nmse(&reference, &logits);
                assert!(distance < 0.05, "{type_k} {type_v} {mode:?}: {distance}");
            }
        }
    }
}

#[test]
fn every_k_type_works_without_flash_attention() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(24, 3);
    let params = |type_k| {
        ContextParams::new(256)
            .threads(1)
            .cache_types(type_k, KvType::F16)
            .flash_attention(FlashAttention::Off)
    };
    let reference = logits_after(
        &mut model.context(&params(KvType::F16)).unwrap(),
        0,
        &tokens,
    );
    for type_k in KvType::ALL {
        let mut context = model.context(&params(type_k)).unwrap();
        assert!(!context.uses_flash_attention());
        let distance = crate::common::nmse(&reference, &logits_after(&mut context, 0, &tokens));
        assert!(distance < 0.05, "{type_k}: {distance}");
    }
}

#[test]
fn a_head_that_is_not_whole_blocks_is_refused() {
    let of_head_dim = |head_dim: u32| Shape {
        n_embd: 2 * head_dim,
        ..Shape::default()
    };
    let (eighty, ninety_six) = (of_head_dim(80), of_head_dim(96));
    let model = tiny::model_of(&backend(), &eighty);
    for mode in [
        FlashAttention::On,
        FlashAttention::Off,
        FlashAttention::Auto,
    ] {
        let params = ContextParams::new(256)
            .cache_types(KvType::Q8_0, KvType::F16)
            .flash_attention(mode);
        let error = refusal(&model, &params);
        assert!(
            matches!(
                error,
                ContextError::HeadNotDivisible {
                    option: "type_k",
                    block_size: 32,
                    head_dim: 80,
                    ..
                }
            ),
            "{error}"
        );
    }
    let error = refusal(
        &model,
        &ContextParams::new(256).cache_types(KvType::F16, KvType::Q4_0),
    );
    assert!(
        matches!(
            error,
            ContextError::HeadNotDivisible {
                option: "type_v",
                ..
            }
        ),
        "{error}"
    );

    let model = tiny::model_of(&backend(), &ninety_six);
    let mut context = model
        .context(&ContextParams::new(256).cache_types(KvType::Q8_0, KvType::Q4_0))
        .unwrap();
    logits_after(&mut context, 0, &some_tokens(5, 1));
}

#[test]
fn a_latent_cache_needs_equal_types() {
    let model = tiny::latent(&backend());
    let error = refusal(
        &model,
        &ContextParams::new(256).cache_types(KvType::Q8_0, KvType::F16),
    );
    assert!(
        matches!(error, ContextError::TypesMustBeEqual { .. }),
        "{error}"
    );
    model
        .context(&ContextParams::new(256).cache_types(KvType::Q8_0, KvType::Q8_0))
        .expect("equal types work");
}

#[test]
fn rank_pooling_without_a_classifier_is_refused() {
    let model = tiny::model(&backend());
    let error = refusal(
        &model,
        &ContextParams::new(256).embeddings().pooling(Pooling::Rank),
    );
    assert!(matches!(error, ContextError::NoClassifier), "{error}");
}

#[test]
fn frequencies_that_are_not_numbers_are_refused() {
    let model = tiny::model(&backend());
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        let error = refusal(&model, &ContextParams::new(256).rope_freq_base(bad));
        assert!(
            matches!(
                error,
                ContextError::BadNumber {
                    option: "rope_freq_base",
                    ..
                }
            ),
            "{error}"
        );
        let error = refusal(&model, &ContextParams::new(256).rope_freq_scale(bad));
        assert!(
            matches!(
                error,
                ContextError::BadNumber {
                    option: "rope_freq_scale",
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_non_causal_batch_may_be_longer_than_the_context() {
    let model = tiny::model(&backend());
    let params = ContextParams::new(256)
        .attention(Attention::NonCausal)
        .n_batch(4096);
    assert_eq!(model.context(&params).unwrap().n_batch(), 4096);
}

#[test]
fn contexts_can_be_made_and_dropped_many_times() {
    let model = tiny::model(&backend());
    for _ in 0..crate::common::fewer_if_slow(50) {
        let mut context = model
            .context(&ContextParams::new(256).threads(2).threads_batch(1))
            .unwrap();
        logits_after(&mut context, 0, &some_tokens(2, 1));
    }
}

#[test]
fn the_breakdown_counts_weights_cache_and_working_memory() {
    let model = tiny::model(&backend());
    let context = model.context(&ContextParams::new(512).threads(1)).unwrap();
    let rows = context.memory_breakdown().unwrap();
    let sum = |get: fn(&rolling_kv::MemoryUse) -> u64| rows.iter().map(get).sum::<u64>();
    // Two layers, K and V of one head of 32 in 16 bits.
    assert_eq!(sum(|row| row.context_bytes), 2 * 2 * 32 * 2 * 512);
    assert!(sum(|row| row.model_bytes) >= model.size_bytes(), "{rows:?}");
    assert!(sum(|row| row.compute_bytes) > 0);
    assert!(rows.iter().any(|row| row.on_host));
    assert_eq!(
        rows[0].total_bytes(),
        rows[0].model_bytes + rows[0].context_bytes + rows[0].compute_bytes
    );
}

#[test]
fn the_counters_count_what_ran() {
    let model = tiny::model(&backend());
    let mut context = model.context(&ContextParams::new(256).threads(1)).unwrap();
    assert_eq!(
        (context.perf().prompt_tokens, context.perf().decode_tokens),
        (0, 0)
    );
    logits_after(&mut context, 0, &some_tokens(30, 1));
    for token in some_tokens(5, 2) {
        logits_after(&mut context, 0, &[token]);
    }
    let perf = context.perf();
    assert_eq!((perf.prompt_tokens, perf.decode_tokens), (30, 5));
    assert!(perf.prompt_rate().unwrap() > 0.0 && perf.decode_rate().unwrap() > 0.0);
    context.reset_perf();
    assert_eq!(
        (context.perf().prompt_tokens, context.perf().decode_tokens),
        (0, 0)
    );
}
