//! The spill window on the small real model: whatever lies on the host, the logits have the bits of the resident cache.
//! Each test prints SKIP when the model is missing.

#[path = "../common/mod.rs"]
mod common;

use common::{Random, backend, real};
use rolling_kv::{
    AddSpecial, Backend, Batch, Context, ContextParams, KvType, Model, Order, Output, ParseSpecial,
    Residency, RollingKv, Token,
};

/// Set by `cargo xtask gates --full`: the long text in every window and mix and in both types.
const LONG: &str = "ROLLING_KV_TEST_LONG";

/// Tokens of the prompt's end, and decoded ones, whose logits are compared.
const COMPARED: usize = 16;

/// A text of so many tokens: plain sentences, no two alike.
fn text(model: &Model, count: usize) -> Vec<Token> {
    const WORDS: [[&str; 6]; 4] = [
        [
            "The gardener",
            "A fisherman",
            "Her brother",
            "The old clock",
            "A small engine",
            "The librarian",
        ],
        [
            "counted", "carried", "painted", "forgot", "measured", "repaired",
        ],
        ["stones", "letters", "lamps", "apples", "bottles", "wheels"],
        [
            "near the harbour",
            "before noon",
            "in the valley",
            "after the rain",
            "by the mill",
            "at the market",
        ],
    ];
    let mut random = Random::new(1);
    let mut text = String::new();
    for _ in 0..count / 8 {
        let [who, did, what, place] = WORDS.map(|words| words[random.below(6) as usize]);
        let number = 10 + random.below(9990);
        text.push_str(&format!("{who} {did} {number} {what} {place}. "));
    }
    let tokens = model
        .vocab()
        .tokenize(&text, AddSpecial::Auto, ParseSpecial::No);
    let mut tokens = tokens.expect("the text becomes tokens");
    assert!(
        tokens.len() >= count,
        "the text is too short: {}",
        tokens.len()
    );
    tokens.truncate(count);
    tokens
}

/// Logits of the prompt's last tokens, all from one batch, and of the decoded ones.
fn logits_of(context: &mut Context<'_>, tokens: &[Token]) -> Vec<u32> {
    let prompt = tokens.len() - COMPARED;
    context
        .append(0, &tokens[..prompt - COMPARED])
        .expect("the prompt fits");
    let mut batch = Batch::new();
    for (at, token) in tokens
        .iter()
        .enumerate()
        .take(prompt)
        .skip(prompt - COMPARED)
    {
        batch.push(*token, at as i32, &[0], Output::Yes);
    }
    context.decode(&batch).expect("the end of the prompt fits");
    let mut bits = Vec::new();
    let mut note = |values: &[f32]| {
        assert!(values.iter().all(|logit| logit.is_finite()));
        bits.extend(values.iter().map(|logit| logit.to_bits()));
    };
    for index in 0..COMPARED {
        note(context.logits(index).expect("an output").values());
    }
    for token in &tokens[prompt..] {
        context.append(0, &[*token]).expect("the token fits");
        note(context.last_logits().expect("an output").values());
    }
    bits
}

fn run(model: &Model, kv: KvType, spill: RollingKv, tokens: &[Token]) -> (Vec<u32>, Residency) {
    let params = ContextParams::new(tokens.len() as u32)
        .threads(1)
        .cache_types(kv, kv)
        .rolling_kv(spill.order(Order::Tiled));
    let mut context = model.context(&params).expect("the context is made");
    let bits = logits_of(&mut context, tokens);
    (bits, context.residency())
}

/// Windows at, below and beside whole tiles, and two mixes over the layers.
fn budgets(windows: &[u32], n_layer: u32) -> Vec<RollingKv> {
    let mut budgets: Vec<_> = windows
        .iter()
        .map(|&cells| RollingKv::window_cells(cells))
        .collect();
    budgets.push(
        RollingKv::window_cells(1000)
            .resident_layers(0..=4)
            .layer_window(n_layer - 1, 0),
    );
    budgets.push(
        (0..n_layer).fold(RollingKv::window_cells(512), |mix, layer| {
            mix.layer_window(layer, [0, 128, 256, 1000, 3072][layer as usize % 5])
        }),
    );
    budgets
}

fn assert_spilled(residency: &Residency, used: u32, what: &str) {
    let totals = residency.totals();
    let mut spilled = false;
    for layer in &residency.layers {
        spilled |= layer.window_cells < used;
        assert!(
            layer.counters.nodes > 0,
            "{what}: layer {} did not run in tiles",
            layer.layer
        );
    }
    assert_eq!(totals.tiles_tail > 0, spilled, "{what}: {totals:?}");
    assert_eq!(totals.tail_bytes_read > 0, spilled, "{what}: {totals:?}");
}

fn compare(model: &Model, kv: KvType, tokens: &[Token], budgets: &[RollingKv]) {
    let (expected, resident) = run(model, kv, RollingKv::resident(), tokens);
    assert_eq!(resident.host_bytes(), 0);
    for budget in budgets {
        let what = format!("{} tokens, {kv}, {budget:?}", tokens.len());
        let (found, residency) = run(model, kv, budget.clone(), tokens);
        assert!(found == expected, "{what}: the bits differ");
        assert_spilled(&residency, tokens.len() as u32, &what);
        println!("{} tokens, {kv}: equal with {residency}", tokens.len());
    }
}

/// The model, unless it is missing or the machine is as slow as a checker makes it.
fn model_or_skip(test: &str, backend: &Backend) -> Option<Model> {
    if std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some() {
        println!("SKIP {test}: it would take hours, and tests/residency runs the same code");
        return None;
    }
    real::model_or_skip(test, backend)
}

/// The windows of the long text; with fewer tokens the last two leave little or nothing on the host.
const WINDOWS: [u32; 4] = [0, 256, 1000, 3072];

/// A text that the widest window holds, in every budget.
fn short(test: &str, kv: KvType) {
    let backend = backend();
    if let Some(model) = model_or_skip(test, &backend) {
        let (length, windows) = match std::env::var_os(LONG) {
            Some(_) => (1536, &WINDOWS[..]),
            None => (640, &WINDOWS[1..2]),
        };
        let budgets = budgets(windows, model.n_layer());
        compare(&model, kv, &text(&model, length), &budgets);
    }
}

#[test]
fn every_budget_gives_the_bits_of_the_resident_cache_in_f16() {
    short(
        "every_budget_gives_the_bits_of_the_resident_cache_in_f16",
        KvType::F16,
    );
}

#[test]
fn every_budget_gives_the_bits_of_the_resident_cache_in_q8_0() {
    short(
        "every_budget_gives_the_bits_of_the_resident_cache_in_q8_0",
        KvType::Q8_0,
    );
}

/// Loss of quantisation was taken for a fault of the cache, and the other way round (ikawrakow/ik_llama.cpp#1205,
/// eeshansrivastava89/minimal-ai#18): at any depth, a window loses nothing that its own type does not.
#[test]
fn a_long_text_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let test = "a_long_text_gives_the_bits_of_the_resident_cache";
    let Some(model) = model_or_skip(test, &backend) else {
        return;
    };
    if std::env::var_os(LONG).is_none() {
        let window = RollingKv::window_cells(1000);
        compare(&model, KvType::F16, &text(&model, 1024), &[window]);
        return;
    }
    let tokens = text(&model, 6000);
    for kv in [KvType::F16, KvType::Q8_0] {
        compare(&model, kv, &tokens, &budgets(&WINDOWS, model.n_layer()));
    }
}
