use rolling_kv::{ContextParams, FlashAttention, KvType, RollingKv};

use crate::common::{backend, logits_after, nmse, some_tokens, tiny};
use crate::twins::{assert_same_bits, bits, prompt_and_decode, resident, spilled};

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

#[test]
fn every_window_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model(&backend);
    let expected = prompt_and_decode(&mut resident(&model, &params()), 0, 300);
    for window in [
        0, 1, 31, 32, 33, 64, 100, 256, 288, 480, 511, 512, 513, 4096,
    ] {
        let mut context = spilled(&model, &params(), RollingKv::window_cells(window));
        let found = prompt_and_decode(&mut context, 0, 300);
        assert_same_bits(&found, &expected, &format!("window {window}"));

        let totals = context.residency().totals();
        assert!(
            totals.nodes > 0 && (totals.tiles_tail > 0) == (window / 32 * 32 < 300),
            "window {window}: {totals:?}"
        );
    }
}

#[test]
fn every_budget_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model_of(
        &backend,
        &tiny::Shape {
            n_layer: 5,
            ..tiny::Shape::default()
        },
    );
    let expected = prompt_and_decode(&mut resident(&model, &params()), 0, 300);
    let budgets = [
        RollingKv::window_cells(64).resident_layers(0..=1),
        RollingKv::window_cells(0).resident_layers(4..=4),
        RollingKv::resident().layer_window(2, 96),
        RollingKv::window_cells(128)
            .layer_window(0, 0)
            .layer_window(1, 32)
            .layer_window(3, 512),
        RollingKv::vram_budget_mib(0),
    ];
    for budget in budgets {
        let mut context = spilled(&model, &params(), budget.clone());
        assert_same_bits(
            &prompt_and_decode(&mut context, 0, 300),
            &expected,
            &format!("{budget:?}"),
        );
    }
}

#[test]
fn every_cache_type_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model_of(
        &backend,
        &tiny::Shape {
            n_embd: 128,
            ..tiny::Shape::default()
        },
    );
    let mut pairs: Vec<_> = KvType::ALL
        .iter()
        .filter(|kv| **kv != KvType::F32)
        .map(|kv| (*kv, *kv))
        .collect();
    pairs.extend([
        (KvType::F16, KvType::Q8_0),
        (KvType::Q8_0, KvType::Q4_0),
        (KvType::Q5_1, KvType::F16),
    ]);
    for (k, v) in pairs {
        let params = params().cache_types(k, v);
        let expected = prompt_and_decode(&mut resident(&model, &params), 0, 300);
        let found = prompt_and_decode(
            &mut spilled(&model, &params, RollingKv::window_cells(96)),
            0,
            300,
        );
        assert_same_bits(&found, &expected, &format!("K {k}, V {v}"));
    }
}

#[test]
fn sliding_and_hybrid_models_give_the_bits_of_the_resident_cache() {
    let backend = backend();
    for (name, model) in [
        ("sliding", tiny::sliding(&backend)),
        ("hybrid", tiny::hybrid(&backend)),
    ] {
        let expected = prompt_and_decode(&mut resident(&model, &params()), 0, 300);
        let mut context = spilled(&model, &params(), RollingKv::window_cells(64));
        assert_same_bits(&prompt_and_decode(&mut context, 0, 300), &expected, name);

        let residency = context.residency();
        assert!(residency.totals().tiles_tail > 0, "{name}: {residency}");
        for layer in residency.layers.iter().filter(|layer| layer.sliding) {
            assert_eq!(
                layer.host_bytes, 0,
                "{name}: the sliding cache stays resident"
            );
        }
    }
}

#[test]
fn a_recurrent_model_has_nothing_to_spill_and_runs() {
    let backend = backend();
    let model = tiny::recurrent(&backend);
    let mut context = spilled(&model, &params(), RollingKv::window_cells(64));
    let mut stock = model.context(&params()).expect("an ordinary context");
    assert_same_bits(
        &prompt_and_decode(&mut context, 0, 100),
        &prompt_and_decode(&mut stock, 0, 100),
        "recurrent",
    );
    assert!(context.residency().layers.is_empty());
}

#[test]
fn streams_of_different_lengths_give_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model(&backend);
    for unified in [false, true] {
        let mut params = ContextParams::new(1536)
            .n_seq_max(3)
            .n_ubatch(64)
            .threads(1);
        if unified {
            params = params.kv_unified();
        }
        let mut twins = [
            resident(&model, &params),
            spilled(&model, &params, RollingKv::window_cells(96)),
        ];
        for (seq, length) in [(0, 40), (1, 300), (2, 97)] {
            let [left, right] = &mut twins;
            let expected = prompt_and_decode(left, seq, length);
            assert_same_bits(
                &prompt_and_decode(right, seq, length),
                &expected,
                &format!("sequence {seq}, unified {unified}"),
            );
        }
    }
}

#[test]
fn while_everything_fits_order_auto_is_stock_bit_for_bit() {
    let backend = backend();
    let model = tiny::model(&backend);
    let stock = prompt_and_decode(
        &mut model.context(&params()).expect("an ordinary context"),
        0,
        300,
    );
    for spill in [
        RollingKv::resident(),
        RollingKv::window_cells(512),
        RollingKv::auto(),
    ] {
        let mut context = model
            .context(&params().rolling_kv(spill.clone()))
            .expect("the context is made");
        assert_same_bits(
            &prompt_and_decode(&mut context, 0, 300),
            &stock,
            &format!("{spill:?}"),
        );
        assert_eq!(
            context.residency().totals().nodes,
            0,
            "stock's own attention ran"
        );
    }
}

#[test]
fn once_spilled_order_auto_is_near_stock() {
    let backend = backend();
    let model = tiny::model(&backend);
    let stock = prompt_and_decode(
        &mut model.context(&params()).expect("an ordinary context"),
        0,
        300,
    );
    let spill = RollingKv::window_cells(64).tile_cells(32);
    let mut context = model
        .context(&params().rolling_kv(spill))
        .expect("the context is made");
    let found = prompt_and_decode(&mut context, 0, 300);
    assert!(context.residency().totals().tiles_tail > 0);
    assert!(
        bits(&found) != bits(&stock),
        "the tiles are merged in another order than stock's"
    );
    assert!(nmse(&found, &stock) < 1e-4, "{}", nmse(&found, &stock));
}

#[test]
fn a_batch_astride_the_border_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model(&backend);
    for first in [1, 31, 63, 64, 65] {
        let mut found = Vec::new();
        for mut context in [
            resident(&model, &params()),
            spilled(&model, &params(), RollingKv::window_cells(64)),
        ] {
            let mut logits = logits_after(&mut context, 0, &some_tokens(first, 3));
            logits.extend(logits_after(&mut context, 0, &some_tokens(2, 4)));
            logits.extend(logits_after(&mut context, 0, &some_tokens(40, 5)));
            found.push(logits);
        }
        assert_same_bits(&found[1], &found[0], &format!("{first} tokens first"));
    }
}

#[test]
fn flash_attention_on_and_auto_are_both_accepted() {
    let backend = backend();
    let model = tiny::model(&backend);
    for mode in [FlashAttention::Auto, FlashAttention::On] {
        let mut context = spilled(
            &model,
            &params().flash_attention(mode),
            RollingKv::window_cells(64),
        );
        prompt_and_decode(&mut context, 0, 200);
        assert!(context.residency().totals().tiles_tail > 0, "{mode:?}");
    }
}
