//! Who attends to the tail, on a device whose time is reckoned: no bit changes, and each engine takes what theory says.

mod common;

use common::sim::{
    TILE, Twins, alone, context, few_tokens_at_once, prompt_and_decode, shape,
    streams_of_different_lengths,
};
use common::{logits_after, some_tokens};
use rolling_kv::{Backend, Context, ContextParams, KvType, Order, RollingKv, Staging, TailEngine};

/// Bytes per nanosecond of the link, and of the host's kernel.
const LINK: f64 = 0.2;
const HOST: f64 = 0.6;

fn backend() -> Backend {
    let backend = common::backend();
    backend
        .simulate("mem=64MiB,link=200MB/s,latency=1us,time=reckoned,launch=2us,membw=20GB/s,hostbw=600MB/s")
        .expect("the simulated device is added");
    backend
}

fn params() -> ContextParams {
    ContextParams::new(2048).n_ubatch(128).threads(1)
}

fn spill(window: u32, engine: TailEngine) -> RollingKv {
    RollingKv::window_cells(window)
        .copy_cells(TILE)
        .ring_depth(64)
        .tail_engine(engine)
}

/// Steps until the split is what the measured rates make of it.
const SETTLING: usize = 24;

/// What ten decode steps take, once the engine has settled: reckoned nanoseconds a step, and the counters' growth.
struct Steps {
    ns: f64,
    bytes: f64,
    host_bytes: f64,
    up: f64,
    down: f64,
    last: Staging,
}

fn steps(context: &mut Context<'_>, depth: usize) -> Steps {
    const MEASURED: usize = 10;
    logits_after(context, 0, &some_tokens(depth, 1));
    for token in some_tokens(SETTLING, 2) {
        logits_after(context, 0, &[token]);
    }
    let before = context.staging().expect("the device stages");
    for token in some_tokens(MEASURED, 3) {
        logits_after(context, 0, &[token]);
    }
    let last = context.staging().expect("the device stages");
    let a_step = |from: u64, to: u64| (to - from) as f64 / MEASURED as f64;
    Steps {
        ns: a_step(before.device_ns, last.device_ns),
        bytes: a_step(before.bytes, last.bytes),
        host_bytes: a_step(before.host_bytes, last.host_bytes),
        up: a_step(before.host_bytes_up, last.host_bytes_up),
        down: a_step(before.host_bytes_down, last.host_bytes_down),
        last,
    }
}

#[test]
fn no_bit_depends_on_who_attends_to_the_tail() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    for (threads, kv_type) in [
        (1, KvType::F16),
        (2, KvType::F16),
        (1, KvType::Q8_0),
        (1, KvType::Bf16),
    ] {
        let params = params().threads(threads).cache_types(kv_type, kv_type);
        let run = |context: &mut Context<'_>| prompt_and_decode(context, 0, 400);
        let expected = twins.expected(&params, run);
        for engine in TailEngine::ALL {
            for (window, host_threads) in [(0, 1), (64, 3), (352, 2)] {
                let spill = spill(window, engine).host_threads(host_threads);
                let mut spilled = context(&twins.device, &params, spill);
                assert!(
                    run(&mut spilled) == expected,
                    "{engine:?}, window {window}, {kv_type:?}, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn drafts_and_streams_are_attended_to_by_the_host_as_well() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    let three = ContextParams::new(3 * 512)
        .n_ubatch(64)
        .threads(1)
        .n_seq_max(3);
    for engine in [TailEngine::Host, TailEngine::Hybrid] {
        let few = twins.expected(&params(), few_tokens_at_once);
        let mut spilled = context(&twins.device, &params(), spill(64, engine));
        assert!(few_tokens_at_once(&mut spilled) == few, "{engine:?}");
        assert!(spilled.residency().totals().tiles_host > 0);

        let streams = twins.expected(&three, streams_of_different_lengths);
        let mut spilled = context(&twins.device, &three, spill(64, engine));
        assert!(
            streams_of_different_lengths(&mut spilled) == streams,
            "{engine:?}"
        );
        assert!(spilled.residency().totals().tiles_host > 0);
    }
}

/// Nothing fits a window of 0, in order auto as well: stock's attention would read every row over the link where it lies.
#[test]
fn regression_a_window_of_0_is_read_by_the_engines_in_every_order() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    for order in [Order::Auto, Order::Tiled] {
        for engine in TailEngine::ALL {
            let spill = RollingKv::window_cells(0)
                .tile_cells(TILE)
                .order(order)
                .tail_engine(engine);
            let mut spilled = twins
                .device
                .context(&params().rolling_kv(spill))
                .expect("the context is made");
            prompt_and_decode(&mut spilled, 0, 300);
            let totals = spilled.residency().totals();
            assert!(totals.nodes > 0 && totals.tiles_window == 0, "{totals:?}");
            let staging = spilled.staging().expect("the device stages");
            let brought = (staging.bytes > 0, staging.host_bytes > 0);
            let expected = match engine {
                TailEngine::Stream => (true, false),
                // A prompt is always brought.
                _ => (true, true),
            };
            assert_eq!(brought, expected, "{order:?} {engine:?}");
        }
    }
}

/// Queries of one step and the mask go down, partials come up; no row of the tail does.
#[test]
fn with_the_host_alone_nothing_but_queries_and_partials_moves() {
    let _alone = alone();
    let shape = shape(4);
    let twins = Twins::new(&backend(), &shape);
    let mut spilled = context(&twins.device, &params(), spill(256, TailEngine::Host));
    let found = steps(&mut spilled, 1000);
    let before = spilled.staging().expect("the device stages");
    assert_eq!(found.bytes, 0.0);
    assert!(found.host_bytes > 0.0);
    // 4 heads of 32: a tile of 32 cells is 32*2*2*32*2 bytes for 4*(32 + 2)*4 of partials.
    assert!(
        found.up < found.host_bytes / 12.0,
        "{} {}",
        found.up,
        found.host_bytes
    );
    let query = f64::from(shape.n_layer * shape.n_embd) * 4.0;
    assert!(
        found.down >= query && found.down < query + 2.0 * 2048.0 * 64.0,
        "{}",
        found.down
    );
    assert_eq!(before.host_share, 1.0);
    let totals = spilled.residency().totals();
    assert!(
        totals.tiles_host > 0 && totals.host_bytes_read <= totals.tail_bytes_read,
        "{totals:?}"
    );
}

/// Both ends of a short and of a long tail: a step takes what theory says of its engine, and the hybrid takes the least.
#[test]
fn each_engine_takes_what_theory_says() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(6));
    let resident = RollingKv::resident();
    for depth in [600, 1200, 1900] {
        let run = |spill| steps(&mut context(&twins.device, &params(), spill), depth);
        let compute = run(resident.clone()).ns;
        let stream = run(spill(256, TailEngine::Stream));
        let host = run(spill(256, TailEngine::Host));
        let hybrid = run(spill(256, TailEngine::Hybrid));
        let auto = run(spill(256, TailEngine::Auto));
        let tail = host.host_bytes;
        let what = format!(
            "depth {depth}: compute {compute:.0}, tail {tail:.0} B, stream {:.0}, host {:.0}, hybrid {:.0}, auto {:.0}, share {:.2}",
            stream.ns, host.ns, hybrid.ns, auto.ns, hybrid.last.host_share
        );
        let within =
            |found: f64, expected: f64, share: f64| (found / expected - 1.0).abs() <= share;
        // Of each layer two latencies and the last tile's partials cannot be hidden.
        assert!(within(stream.ns, compute.max(tail / LINK), 0.05), "{what}");
        assert!(within(host.ns, compute + tail / HOST, 0.10), "{what}");
        let bound = (compute + tail / HOST) / (1.0 + LINK / HOST);
        assert!(
            hybrid.ns <= 1.10 * bound.max(compute),
            "bound {bound:.0}; {what}"
        );
        assert!(hybrid.ns <= 1.02 * stream.ns.min(host.ns), "{what}");
        assert!(within(auto.ns, hybrid.ns, 0.02), "{what}");
    }
}

/// What computing hides, the host leaves to the link.
#[test]
fn a_tail_that_the_link_brings_in_time_is_left_to_it() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(6));
    let mut spilled = context(&twins.device, &params(), spill(640, TailEngine::Hybrid));
    let found = steps(&mut spilled, 660);
    assert_eq!(found.host_bytes, 0.0, "{}", found.last);
    assert_eq!(found.last.host_share, 0.0);
    assert!(found.bytes > 0.0);
}

/// The split stays once it is found: what was copied ahead is what the next step needs.
#[test]
fn the_split_settles() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(6));
    let mut spilled = context(&twins.device, &params(), spill(256, TailEngine::Hybrid));
    let found = steps(&mut spilled, 1500);
    let changes = found.last.host_changes;
    let discarded = found.last.tiles_discarded;
    for token in some_tokens(40, 4) {
        logits_after(&mut spilled, 0, &[token]);
    }
    let last = spilled.staging().expect("the device stages");
    assert!(last.host_changes <= changes + 2, "{changes} {last:?}");
    assert!(
        last.tiles_discarded <= discarded + 2 * last.depth,
        "{discarded} {last:?}"
    );
}

/// A tail of a smaller type has the same bits on the device as on the CPU, whoever attends to it.
#[test]
fn a_tail_of_another_type_has_the_same_bits_everywhere() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    for (k, v) in [(KvType::Q8_0, KvType::Q8_0), (KvType::F16, KvType::Q4_0)] {
        for window in [0, 64] {
            let typed = |engine| spill(window, engine).tail_type_k(k).tail_type_v(v);
            let run = |model, engine| {
                let mut context = context(model, &params(), typed(engine));
                (
                    prompt_and_decode(&mut context, 0, 400),
                    context.residency().totals().tiles_host,
                )
            };
            let (expected, _) = run(&twins.cpu, TailEngine::Auto);
            for engine in TailEngine::ALL {
                let (found, tiles_host) = run(&twins.device, engine);
                assert!(found == expected, "{engine:?}, window {window}, {k} {v}");
                assert_eq!(tiles_host > 0, engine != TailEngine::Stream, "{engine:?}");
            }
        }
    }
}

/// A thread could ask for a tile's partials while another was still reckoning when they come: the host's time was then left out. And one
/// that had come to the next tile could wait for it before another had given back the last: what was measured, and the split that
/// was made of it, then depended on how threads happened to run.
#[test]
fn regression_a_step_takes_as_long_whatever_the_threads() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(4));
    for engine in [TailEngine::Host, TailEngine::Stream, TailEngine::Hybrid] {
        let taken = |threads| {
            let params = params().threads(threads);
            let spill = spill(32, engine).ring_depth(8);
            let mut context = context(&twins.device, &params, spill);
            logits_after(&mut context, 0, &some_tokens(300, 1));
            for token in some_tokens(10, 2) {
                logits_after(&mut context, 0, &[token]);
            }
            let last = context.staging().expect("the device stages");
            (last.device_ns, last.stall_ns, last.host_changes)
        };
        let expected = taken(1);
        for _ in 0..2 {
            let found = taken(2);
            assert_eq!(found, expected, "{engine:?}: nanoseconds, and changes");
        }
    }
}
