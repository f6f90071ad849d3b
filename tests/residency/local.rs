use rolling_kv::{
    Backend, Context, ContextParams, KvType, LocalLayers, Model, RollingKv, SequenceError,
};

use crate::common::{backend, logits_after, nmse, some_tokens, tiny};
use crate::twins::{assert_same_bits, bits, prompt_and_decode, resident, spilled};

/// Rows of a local layer go round after 256 - 4 tokens and more.
const BATCH: u32 = 64;

fn params() -> ContextParams {
    ContextParams::new(1024)
        .n_batch(BATCH)
        .n_ubatch(BATCH)
        .threads(1)
}

fn four_layers(backend: &Backend) -> Model {
    let shape = tiny::Shape {
        n_layer: 4,
        ..tiny::Shape::default()
    };
    tiny::model_of(backend, &shape)
}

/// Appends in batches, as a context with a short batch wants it.
fn read(context: &mut Context<'_>, seq: i32, count: usize, seed: u64) -> Vec<f32> {
    let mut logits = Vec::new();
    for part in some_tokens(count, seed).chunks(BATCH as usize) {
        logits = logits_after(context, seq, part);
    }
    logits
}

#[test]
fn a_local_layer_that_sees_the_whole_text_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    for (name, model, layers) in [
        ("llama", tiny::model(&backend), vec![0]),
        ("latent", tiny::latent(&backend), vec![1]),
        ("sliding", tiny::sliding(&backend), vec![1]),
        ("shared", tiny::sharing_layers(&backend), vec![1]),
    ] {
        for kv_type in [KvType::F16, KvType::Q8_0] {
            let params = params().cache_types(kv_type, kv_type);
            let expected = prompt_and_decode(&mut resident(&model, &params), 0, 300);
            let spill =
                RollingKv::window_cells(64).local_layers(LocalLayers::new(layers.clone(), 1000));
            let found = prompt_and_decode(&mut spilled(&model, &params, spill), 0, 300);
            assert_same_bits(&found, &expected, &format!("{name}, {kv_type}"));
        }
    }
}

/// A model whose layers 0, 1 and 2 look back 32 tokens, if `sliding`.
fn olmo2(backend: &Backend, sliding: bool) -> Model {
    let shape = tiny::Shape {
        architecture: "olmo2",
        n_layer: 4,
        n_head_kv: 2,
        ..tiny::Shape::default()
    };
    let mut description = tiny::describe(&shape);
    if sliding {
        description = description.u32("olmo2.attention.sliding_window", 32);
    }
    tiny::finish(description, backend, 21)
}

#[test]
fn local_layers_see_what_sliding_layers_of_the_model_see() {
    let backend = backend();
    let (slides, whole) = (olmo2(&backend, true), olmo2(&backend, false));
    let expected = prompt_and_decode(&mut resident(&slides, &params()), 0, 700);
    let local = |layers: std::ops::Range<u32>, cells, first| {
        let local = LocalLayers::new(layers, cells).first(first);
        let mut context = spilled(
            &whole,
            &params(),
            RollingKv::window_cells(64).local_layers(local),
        );
        nmse(&prompt_and_decode(&mut context, 0, 700), &expected)
    };
    let same = local(0..3, 32, 0);
    assert!(same < 1e-5, "{same:e}");
    for (what, other) in [
        ("one token more", local(0..3, 33, 0)),
        ("one token less", local(0..3, 31, 0)),
        ("a first token", local(0..3, 32, 1)),
        ("one layer less", local(0..2, 32, 0)),
    ] {
        assert!(other > 10.0 * same, "{what}: {other:e} beside {same:e}");
    }
}

#[test]
fn a_local_layer_has_no_tail_and_reads_none() {
    let backend = backend();
    let model = four_layers(&backend);
    let spill = RollingKv::window_cells(64).local_layers(LocalLayers::new(1..=2, 100));
    let mut context = spilled(&model, &params(), spill);
    read(&mut context, 0, 600, 3);
    let residency = context.residency();
    for layer in &residency.layers {
        let counters = layer.counters;
        if layer.local.is_some() {
            assert!((1..=2).contains(&layer.layer), "{layer:?}");
            assert_eq!(layer.host_bytes, 0);
            assert_eq!((counters.tiles_tail, counters.tail_bytes_read), (0, 0));
            assert!(counters.tiles_window > 0, "its attention ran");
            assert_eq!(layer.window_cells, 256, "4 + 100 + 64, in whole 256");
        } else {
            assert!(layer.host_bytes > 0 && counters.tiles_tail > 0, "{layer:?}");
        }
    }
    assert!(residency.to_string().contains("2 local layers"));
}

#[test]
fn windows_do_not_change_the_bits_beside_local_layers() {
    let backend = backend();
    let model = four_layers(&backend);
    let local = || LocalLayers::new([0, 3], 50);
    let mut twin = spilled(
        &model,
        &params(),
        RollingKv::resident().local_layers(local()),
    );
    let expected = read(&mut twin, 0, 700, 3);
    for window in [0, 32, 256] {
        let spill = RollingKv::window_cells(window).local_layers(local());
        let found = read(&mut spilled(&model, &params(), spill), 0, 700, 3);
        assert_same_bits(&found, &expected, &format!("window {window}"));
    }
    let whole = read(&mut resident(&model, &params()), 0, 700, 3);
    assert!(bits(&whole) != bits(&expected), "local layers are lossy");
}

#[test]
fn a_batch_can_be_taken_back_and_no_more() {
    let backend = backend();
    let model = four_layers(&backend);
    let spill = || RollingKv::window_cells(64).local_layers(LocalLayers::new(1..=2, 150));
    let expected = {
        let mut context = spilled(&model, &params(), spill());
        read(&mut context, 0, 400, 3);
        read(&mut context, 0, 40, 8)
    };
    let mut context = spilled(&model, &params(), spill());
    read(&mut context, 0, 400, 3);
    read(&mut context, 0, 60, 7);
    context
        .memory()
        .remove(0, 400..)
        .expect("a batch is taken back");
    assert_same_bits(&read(&mut context, 0, 40, 8), &expected, "taken back");

    let refused = context.memory().remove(0, 100..).unwrap_err();
    assert!(
        matches!(refused, SequenceError::PartialRemoval { .. }),
        "{refused}"
    );
    assert_eq!(
        context.positions(0).unwrap(),
        Some(0..=439),
        "nothing is removed"
    );
    context
        .memory()
        .remove(0, ..)
        .expect("all of it can be removed");
    read(&mut context, 0, 400, 3);
    assert_same_bits(&read(&mut context, 0, 40, 8), &expected, "from the start");
}

#[test]
fn each_sequence_has_local_rows_of_its_own() {
    let backend = backend();
    let model = four_layers(&backend);
    let params = ContextParams::new(3 * 512)
        .n_seq_max(3)
        .n_batch(BATCH)
        .n_ubatch(BATCH)
        .threads(1);
    let spill = || RollingKv::window_cells(64).local_layers(LocalLayers::new(1..=2, 50));
    let alone = |seq: i32, count: usize| {
        let mut context = spilled(&model, &params, spill());
        read(&mut context, seq, count, seq as u64);
        read(&mut context, seq, 1, 99)
    };
    let expected: Vec<_> = [(0, 400), (1, 30), (2, 300)]
        .map(|(seq, count)| alone(seq, count))
        .into();
    let mut context = spilled(&model, &params, spill());
    for (seq, count) in [(0, 400), (1, 30), (2, 300)] {
        read(&mut context, seq, count, seq as u64);
    }
    context
        .memory()
        .copy(2, 1, ..)
        .expect("a whole sequence is copied");
    for (seq, of) in [(0, 0), (1, 2), (2, 2)] {
        assert_same_bits(
            &read(&mut context, seq, 1, 99),
            &expected[of],
            &format!("sequence {seq}"),
        );
    }
}

#[test]
fn what_local_layers_cannot_do_is_refused() {
    let backend = backend();
    let model = four_layers(&backend);
    let spill = RollingKv::window_cells(64).local_layers(LocalLayers::new(1..=2, 50));
    let mut context = spilled(&model, &params(), spill);
    read(&mut context, 0, 100, 1);
    assert!(!context.memory().can_shift());
    assert!(context.memory().shift(0, 10.., -5).is_err());
    assert_eq!(
        context.positions(0).unwrap(),
        Some(0..=99),
        "nothing changed"
    );
}

#[test]
fn a_state_of_local_layers_goes_on_where_it_was_saved() {
    let backend = backend();
    let model = four_layers(&backend);
    let spill = |window| RollingKv::window_cells(window).local_layers(LocalLayers::new(1..=2, 150));
    let params = ContextParams::new(2 * 512)
        .n_seq_max(2)
        .n_batch(BATCH)
        .n_ubatch(BATCH)
        .threads(1);
    let mut source = spilled(&model, &params, spill(64));
    read(&mut source, 0, 400, 3);
    read(&mut source, 1, 200, 4);
    let whole = source.save_state().expect("all of it is saved");
    let one = source.save_sequence(0).expect("a sequence is saved");
    let expected = [read(&mut source, 0, 60, 8), read(&mut source, 1, 60, 9)];

    let mut target = spilled(&model, &params, spill(256));
    read(&mut target, 0, 300, 5);
    target.restore_state(&whole).expect("all of it is restored");
    for (seq, seed) in [(0, 8), (1, 9)] {
        let found = read(&mut target, seq, 60, seed);
        assert_same_bits(&found, &expected[seq as usize], &format!("sequence {seq}"));
    }
    let mut target = spilled(&model, &params, spill(0));
    read(&mut target, 0, 90, 6);
    read(&mut target, 1, 450, 7);
    target
        .restore_sequence(&one, 1)
        .expect("a sequence is restored elsewhere");
    assert_same_bits(&read(&mut target, 1, 60, 8), &expected[0], "elsewhere");
    assert_eq!(target.positions(0).unwrap(), Some(0..=89), "the other one");
}

#[test]
fn regression_a_cell_that_was_used_twice_is_saved_with_its_newer_row() {
    let backend = backend();
    let model = four_layers(&backend);
    let params = ContextParams::new(256)
        .n_batch(BATCH)
        .n_ubatch(BATCH)
        .threads(1);
    let spill = || RollingKv::window_cells(64).local_layers(LocalLayers::new(1..=2, 150));
    let mut source = spilled(&model, &params, spill());
    read(&mut source, 0, 250, 3);
    // New tokens take the cells of what was removed, and keep their own positions.
    source.memory().remove(0, 20..120).expect("removed");
    read(&mut source, 0, 90, 4);
    let state = source.save_sequence(0).expect("it is saved");
    let expected = read(&mut source, 0, 5, 8);
    let mut target = spilled(&model, &params, spill());
    target.restore_sequence(&state, 0).expect("it is restored");
    // The cells lie in another order now, and are summed in it.
    let apart = nmse(&read(&mut target, 0, 5, 8), &expected);
    assert!(apart < 1e-5, "{apart:e}");
}

#[test]
fn a_state_of_other_local_layers_is_refused_before_anything_changes() {
    let backend = backend();
    let model = four_layers(&backend);
    let of = |local: Option<LocalLayers>| {
        let spill = RollingKv::window_cells(64);
        let spill = match local {
            Some(local) => spill.local_layers(local),
            None => spill,
        };
        let mut context = spilled(&model, &params(), spill);
        read(&mut context, 0, 100, 1);
        context
    };
    let kinds = || {
        [
            None,
            Some(LocalLayers::new(1..=2, 50)),
            Some(LocalLayers::new(1..=2, 51)),
            Some(LocalLayers::new(1..=1, 50)),
        ]
    };
    for (from, source) in kinds().into_iter().enumerate() {
        let state = of(source).save_state().expect("it is saved");
        for (to, target) in kinds().into_iter().enumerate() {
            let mut target = of(target);
            let restored = target.restore_state(&state);
            assert_eq!(restored.is_ok(), from == to, "{from} to {to}: {restored:?}");
            assert_eq!(target.positions(0).unwrap(), Some(0..=99));
        }
    }
}

#[test]
fn local_layers_that_cannot_be_are_refused_with_a_reason() {
    let backend = backend();
    let refusal = |model: &Model, params: &ContextParams, local: LocalLayers| {
        let spill = RollingKv::window_cells(64).local_layers(local);
        match model.context(&params.clone().rolling_kv(spill)) {
            Ok(_) => panic!("the context was made"),
            Err(error) => error.to_string(),
        }
    };
    let model = four_layers(&backend);
    let several = params().n_seq_max(2).kv_unified();
    for (local, params, why) in [
        (LocalLayers::new(0..=3, 50), params(), "every layer"),
        (LocalLayers::new([4], 50), params(), "layer 4"),
        (LocalLayers::new([1], 0), params(), "0 cells"),
        (LocalLayers::new([1], 50), several, "each sequence"),
    ] {
        let said = refusal(&model, &params, local);
        assert!(said.contains(why), "{said}");
    }
    let of_another = LocalLayers::new([1], 50).for_model(&tiny::model(&backend));
    assert!(refusal(&model, &params(), of_another).contains("another model"));
    let said = refusal(
        &tiny::sliding(&backend),
        &params(),
        LocalLayers::new([0], 50),
    );
    assert!(said.contains("looks back"), "{said}");
    let said = refusal(
        &tiny::many_positions(&backend),
        &params(),
        LocalLayers::new([0], 50),
    );
    assert!(said.contains("positions"), "{said}");
}

#[test]
fn accepted_layers_are_read_from_the_gates_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("budget.json");
    let read = |text: &str| {
        std::fs::write(&file, text).expect("the file is written");
        LocalLayers::from_file(&file)
    };
    let found = read(r#"{"accepted":{"layers":[1,2],"cells":64,"first":4,"n_layer":4}}"#);
    let found = found.expect("it is read");
    assert_eq!((found.layers(), found.cells()), (&[1, 2][..], 64));
    for (text, why) in [
        (r#"{"accepted":null}"#, "accepted none"),
        (
            r#"{"accepted":{"layers":[],"cells":64,"first":4}}"#,
            "accepted none",
        ),
        (r#"{"accepted":{"layers":7}}"#, "is not what"),
        ("{", "is not what"),
    ] {
        let said = read(text).expect_err("it is refused").to_string();
        assert!(said.contains(why), "{said}");
    }
}
