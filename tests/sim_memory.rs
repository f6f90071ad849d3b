//! A device with just enough memory for the weights, a window and the ring: a context whose cache is four times the window works
//! there, and without the window it does not. Prints SKIP when the small real model is missing.

mod common;

use common::{real, some_tokens};
use rolling_kv::{ContextError, ContextParams, FailureKind, Model, ModelParams, Order, RollingKv};

/// Cells of the context, and the device's memory. Weights of SmolLM2 on the device are 94 MiB and what it computes with 13 MiB. A
/// cell takes 22.5 KiB: the caches are 22.5 and 135 MiB, their windows a quarter of that.
fn size() -> (u32, &'static str) {
    match std::env::var_os("ROLLING_KV_TEST_LONG") {
        Some(_) => (6144, "mem=150MiB,link=16GB/s,latency=1us"),
        None => (1024, "mem=120MiB,link=16GB/s,latency=1us"),
    }
}

#[test]
fn a_context_of_four_windows_works_where_the_whole_cache_does_not_fit() {
    let test = "a_context_of_four_windows_works_where_the_whole_cache_does_not_fit";
    if std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some() {
        println!("SKIP {test}: it would take hours");
        return;
    }
    let backend = common::backend();
    let (n_ctx, device) = size();
    let devices = backend.simulate(device).expect("the device is added");
    let free = || devices[0].memory_bytes().0;
    let Some(model) = real::model_or_skip(test, &backend) else {
        return;
    };
    let with_weights = free();
    let params = ContextParams::new(n_ctx).n_ubatch(64).threads(2);

    let error = model
        .context(&params)
        .expect_err("the whole cache does not fit");
    assert!(
        matches!(&error, ContextError::Failed(failure) if failure.kind() == FailureKind::NoMemory),
        "{error:?}"
    );
    assert!(error.to_string().contains("SIM0"), "{error}");
    assert_eq!(
        free(),
        with_weights,
        "a context that failed left something behind"
    );

    let spill = |params: &ContextParams| {
        let window = RollingKv::window_cells(n_ctx / 4).order(Order::Tiled);
        params.clone().rolling_kv(window)
    };
    let text = some_tokens(n_ctx as usize - 144, 5);
    let logits = |context: &mut rolling_kv::Context<'_>| {
        context.append(0, &text).expect("the text fits");
        let logits = context.last_logits().expect("an output").values().to_vec();
        logits
            .iter()
            .map(|logit| logit.to_bits())
            .collect::<Vec<_>>()
    };
    let mut spilled = model.context(&spill(&params)).expect("a quarter fits");
    let made = free();
    let found = logits(&mut spilled);
    assert_eq!(
        free(),
        made,
        "the device's memory is taken when the context is made"
    );
    let residency = spilled.residency();
    assert_eq!(residency.host_bytes(), 3 * residency.device_bytes());
    let staging = spilled.staging().expect("the device stages");
    assert!(staging.bytes > 0 && staging.device_bytes > 0, "{staging:?}");
    drop(spilled);
    assert_eq!(free(), with_weights);

    let cpu = Model::load(&backend, real::path(), &ModelParams::default().devices(&[]))
        .expect("the model is loaded again");
    let mut resident = cpu
        .context(
            &params
                .clone()
                .rolling_kv(RollingKv::resident().order(Order::Tiled)),
        )
        .expect("the host has room");
    assert!(
        logits(&mut resident) == found,
        "the bits of the CPU's resident cache"
    );
}
