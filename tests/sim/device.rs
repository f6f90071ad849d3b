use rolling_kv::{ContextError, ContextParams, DeviceKind, FailureKind, RollingKv};

use crate::backend;
use crate::common::sim::{Twins, context, prompt_and_decode, shape};

#[test]
fn it_is_offered_as_a_card_of_the_size_that_was_asked_for() {
    let devices = backend()
        .simulate("mem=48MiB,link=2GB/s,latency=5us,seed=7")
        .expect("the same specification again is fine");
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].kind(), DeviceKind::Gpu);
    assert_eq!(devices[0].memory_bytes().1, 48 << 20);
    assert!(
        devices[0].description().contains("simulated"),
        "{}",
        devices[0].description()
    );
}

#[test]
fn another_specification_or_one_that_makes_no_sense_is_refused() {
    let backend = backend();
    for (spec, word) in [
        ("mem=1GiB", "already"),
        ("mem=4", "KiB"),
        ("link=fast", "GB/s"),
        ("colour=red", "latency="),
        ("seed=-1", "whole number"),
        ("mem=1KiB", "at least"),
        ("mem=1GiB\0", "NUL"),
    ] {
        let error = backend.simulate(spec).expect_err("it is refused");
        assert!(error.to_string().contains(word), "{spec}: {error}");
    }
}

#[test]
fn a_resident_cache_on_the_device_gives_the_bits_of_the_cpu() {
    let twins = Twins::new(&backend(), &shape(3));
    let params = ContextParams::new(512).n_ubatch(64).threads(2);
    let run = |context: &mut rolling_kv::Context<'_>| prompt_and_decode(context, 0, 200);
    let expected = twins.expected(&params, run);
    let mut resident = context(&twins.device, &params, RollingKv::resident());
    assert!(run(&mut resident) == expected);
    let staging = resident.staging().expect("the device stages");
    assert_eq!(staging.bytes, 0, "{staging:?}");
}

/// Other tests copy over the same link meanwhile, so the sums are bounds.
#[test]
fn what_crosses_the_link_is_counted() {
    let backend = backend();
    let totals = || {
        let device = backend.devices().into_iter();
        let mut told = device.filter_map(|device| device.link_totals());
        told.next().expect("the simulated device tells")
    };
    let twins = Twins::new(&backend, &shape(3));
    let before = totals();
    let mut spilled = context(
        &twins.device,
        &ContextParams::new(512).n_ubatch(64),
        RollingKv::window_cells(64),
    );
    prompt_and_decode(&mut spilled, 0, 300);
    let staging = spilled.staging().expect("the device stages");
    let after = totals();
    assert!(after.bytes_to_device - before.bytes_to_device >= staging.bytes);
    let copies = staging.tiles_early + staging.tiles_late;
    assert!(after.copies_to_device - before.copies_to_device >= copies);
    assert!(
        after.bytes_to_host > before.bytes_to_host,
        "logits come back"
    );
    assert!(after.copies_to_host > before.copies_to_host);
    // 2 GB/s: half a nanosecond a byte.
    let bytes = after.bytes_to_device - before.bytes_to_device;
    let busy = after.busy_ns - before.busy_ns;
    assert!(
        busy.abs_diff(bytes / 2) <= bytes / 100,
        "{busy} ns, {bytes} bytes"
    );
    assert!(
        staging.idle_ns > 0,
        "the queue waits for the host between steps"
    );
    assert!(
        twins.cpu.n_layer() == 3 && backend.devices().iter().any(|d| d.link_totals().is_none())
    );
}

#[test]
fn a_cache_that_does_not_fit_is_an_error_and_one_with_a_window_works() {
    let twins = Twins::new(&backend(), &shape(4));
    // 64 halves of K and of V in 4 layers: 1 KiB a cell, so 64 MiB.
    let params = ContextParams::new(64 * 1024).n_ubatch(16);
    let error = twins
        .device
        .context(&params)
        .expect_err("48 MiB do not hold it");
    assert!(
        matches!(&error, ContextError::Failed(failure) if failure.kind() == FailureKind::NoMemory),
        "{error:?}"
    );
    let mut spilled = context(&twins.device, &params, RollingKv::window_cells(4096));
    let found = prompt_and_decode(&mut spilled, 0, 300);
    let expected = twins.expected(&params, |context| prompt_and_decode(context, 0, 300));
    assert!(found == expected);
    let residency = spilled.residency();
    assert!(residency.device_bytes() < residency.host_bytes());
}
