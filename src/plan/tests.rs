//! What a plan promises, over the machines and models that there are.

use proptest::prelude::*;

use super::*;
use crate::context_params::KvType;

const GIB: u64 = 1 << 30;

fn card() -> Rates {
    Rates {
        to_device_pinned_bytes_per_s: 25e9,
        to_device_pageable_bytes_per_s: 12e9,
        to_host_pinned_bytes_per_s: 25e9,
        to_host_pageable_bytes_per_s: 12e9,
        link_latency_s: 10e-6,
        host_read_bytes_per_s: 100e9,
        host_kernel_bytes_per_s: vec![(KvType::F16, 40e9), (KvType::Q8_0, 36e9)],
        device_memory_bytes_per_s: 800e9,
        device_attention_bytes_per_s: 0.0,
        device_launch_s: 3e-6,
        device_flops: 80e12,
        device_bytes: 23 * GIB,
        host_bytes: 120 * GIB,
    }
}

fn model() -> ModelShape {
    ModelShape::uniform("14b", 48, 40, 8, 128, 9 * GIB)
}

fn planned(rates: &Rates, request: &PlanRequest) -> Plan {
    plan(rates, &model(), request).unwrap()
}

fn step(plan: &Plan, engine: PlanEngine) -> f64 {
    plan.engine(engine).unwrap().step_s
}

#[test]
fn a_short_context_is_resident_and_a_long_one_has_a_window() {
    let short = planned(&card(), &PlanRequest::new(8192));
    assert_eq!(
        (short.fit, short.tail_bytes, short.ring_slots),
        (PlanFit::Resident, 0, 0)
    );
    assert_eq!(short.best, PlanEngine::Stream);
    let long = planned(&card(), &PlanRequest::new(131_072));
    assert_eq!(long.fit, PlanFit::Window);
    assert!(long.window_cells.is_multiple_of(128) && long.window_cells > 40_000);
    // K and V of 8 heads of 128 in 48 layers.
    let cell = 48 * 2 * 8 * 128 * 2;
    assert_eq!(long.window_bytes, u64::from(long.window_cells) * cell);
    assert_eq!(
        long.tail_bytes,
        u64::from(131_072 - long.window_cells) * cell
    );
    // The rule of a context that chooses its window: an eighth of what the weights leave, and half a GiB, stay free.
    let free = 14 * GIB;
    let usable = free - free / 8 - GIB / 2;
    assert_eq!(u64::from(long.window_cells), usable / cell / 128 * 128);
}

#[test]
fn a_tail_takes_what_the_theory_says() {
    let request = PlanRequest::new(131_072).window_cells(16_384);
    let plan = planned(&card(), &request);
    let tail = plan.step_tail_bytes as f64;
    // Partials, which share the link, and latencies are the rest.
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} {expected}");
    };
    near(step(&plan, PlanEngine::Stream), tail / 25e9);
    // Computing without the tail, which the host attends to.
    let compute = 48.0 * 19.0 * 3e-6 + (9.0 * GIB as f64 + plan.window_bytes as f64) / 800e9;
    near(step(&plan, PlanEngine::Host), compute + tail / 40e9);
    near(
        step(&plan, PlanEngine::Hybrid),
        (compute + tail / 40e9) / (1.0 + 25.0 / 40.0),
    );
    assert_eq!(plan.best, PlanEngine::Hybrid);
}

#[test]
fn link_and_host_together_read_no_more_than_the_memory_gives() {
    let request = PlanRequest::new(131_072).window_cells(16_384);
    let at = |host_read_bytes_per_s| {
        let rates = Rates {
            host_read_bytes_per_s,
            ..card()
        };
        planned(&rates, &request)
    };
    let (wide, narrow, less) = (at(100e9), at(45e9), at(20e9));
    assert!(step(&narrow, PlanEngine::Hybrid) > 1.2 * step(&wide, PlanEngine::Hybrid));
    assert!(step(&narrow, PlanEngine::Hybrid) >= narrow.step_tail_bytes as f64 / 45e9);
    for engine in [PlanEngine::Stream, PlanEngine::Host] {
        assert_eq!(step(&narrow, engine), step(&wide, engine), "{engine}");
    }
    // A link that could take more than the memory gives does not.
    assert!(step(&less, PlanEngine::Stream) >= less.step_tail_bytes as f64 / 20e9 * 0.999);
}

#[test]
fn what_does_not_fit_is_said_with_what_is_missing() {
    let large = ModelShape::uniform("70b", 80, 64, 8, 128, 40 * GIB);
    let found = plan(&card(), &large, &PlanRequest::new(8192)).unwrap();
    let PlanFit::NotOnDevice { missing_bytes } = found.fit else {
        panic!("{:?}", found.fit);
    };
    assert!(missing_bytes > 17 * GIB && missing_bytes < 20 * GIB);
    let poor = Rates {
        host_bytes: GIB,
        ..card()
    };
    let found = planned(&poor, &PlanRequest::new(131_072));
    assert!(matches!(found.fit, PlanFit::NotOnHost { missing_bytes } if missing_bytes > GIB));
    assert!(!found.fit.fits());
}

#[test]
fn a_type_without_a_rate_leaves_the_device_alone() {
    let request = PlanRequest::new(131_072).types(KvType::Bf16, KvType::Bf16);
    let plan = planned(&card(), &request);
    assert_eq!(plan.engines.len(), 1);
    assert_eq!(
        (plan.engines[0].engine, plan.best),
        (PlanEngine::Stream, PlanEngine::Stream)
    );
}

#[test]
fn a_narrower_tail_is_shorter_and_faster() {
    let request = PlanRequest::new(131_072).window_cells(16_384);
    let wide = planned(&card(), &request);
    let narrow = planned(&card(), &request.tail_types(KvType::Q8_0, KvType::Q8_0));
    assert!(narrow.tail_bytes < wide.tail_bytes * 6 / 10);
    for engine in PlanEngine::ALL {
        assert!(
            step(&narrow, engine) < 0.7 * step(&wide, engine),
            "{engine}"
        );
    }
}

#[test]
fn what_cannot_be_reckoned_with_is_refused_with_advice() {
    let error = |rates: &Rates, shape: &ModelShape, request: &PlanRequest| {
        plan(rates, shape, request).unwrap_err().to_string()
    };
    let request = PlanRequest::new(4096);
    let dead = Rates {
        to_device_pinned_bytes_per_s: f64::NAN,
        ..card()
    };
    let none = ModelShape::uniform("none", 0, 8, 8, 64, GIB);
    let odd = ModelShape::uniform("odd", 2, 1, 1, 33, GIB);
    let wrong = [
        (error(&dead, &model(), &request), "to_device_pinned"),
        (
            error(&Rates::default(), &model(), &request),
            "without a device",
        ),
        (error(&card(), &none, &request), "no layer"),
        (
            error(
                &card(),
                &odd,
                &request.clone().types(KvType::Q8_0, KvType::F16),
            ),
            "q8_0",
        ),
        (error(&card(), &model(), &PlanRequest::new(0)), "0 tokens"),
        (
            error(&card(), &model(), &request.clone().depth(5000)),
            "5000",
        ),
        (
            error(&card(), &model(), &request.tile_cells(33)),
            "33 cells",
        ),
    ];
    for (text, word) in wrong {
        assert!(text.contains(word) && text.contains("next: "), "{text}");
    }
}

fn rate() -> impl Strategy<Value = f64> {
    (8f64..12.0).prop_map(|power| 10f64.powf(power))
}

fn machine() -> impl Strategy<Value = Rates> {
    (rate(), rate(), rate(), 0f64..1e-4, 0f64..2e-5).prop_map(
        |(link, host, memory, latency, launch)| Rates {
            to_device_pinned_bytes_per_s: link,
            link_latency_s: latency,
            host_kernel_bytes_per_s: vec![(KvType::F16, host)],
            device_memory_bytes_per_s: memory,
            device_launch_s: launch,
            ..card()
        },
    )
}

proptest! {
    #[test]
    fn both_together_are_never_slower_than_the_better_of_the_two(
        rates in machine(), window in 0u32..1024, depth in 1u32..131_072,
    ) {
        let request = PlanRequest::new(131_072).window_cells(window * 128).depth(depth);
        let plan = planned(&rates, &request);
        let [stream, host, hybrid] = PlanEngine::ALL.map(|engine| step(&plan, engine));
        prop_assert!(hybrid <= stream.min(host) * (1.0 + 1e-9), "{} {} {}", hybrid, stream, host);
        prop_assert!(step(&plan, plan.best) <= hybrid * 1.0301);
        // Neither can do less than bring the tail, or compute what it always computes.
        let tail = plan.step_tail_bytes as f64;
        prop_assert!(stream >= tail / rates.to_device_pinned_bytes_per_s * 0.99);
        prop_assert!(host >= tail / rates.host_kernel_bytes_per_s[0].1 * 0.999);
        let best = tail / (rates.to_device_pinned_bytes_per_s + rates.host_kernel_bytes_per_s[0].1);
        prop_assert!(hybrid >= best * 0.97);
    }

    #[test]
    fn a_faster_machine_is_never_slower(rates in machine(), window in 0u32..1024, factor in 1f64..8.0, which in 0usize..4) {
        let mut faster = rates.clone();
        match which {
            0 => faster.to_device_pinned_bytes_per_s *= factor,
            1 => faster.host_kernel_bytes_per_s[0].1 *= factor,
            2 => faster.device_memory_bytes_per_s *= factor,
            _ => faster.device_launch_s /= factor,
        }
        // The ring's size depends on the link, and is not what is asked here. A few steps are played through, so that how full the ring
        // is when the last of them begins leaves a trace.
        let request = PlanRequest::new(65_536).window_cells(window * 64 / 128 * 128).ring(16, 1024);
        let (slow, fast) = (planned(&rates, &request), planned(&faster, &request));
        for engine in PlanEngine::ALL {
            prop_assert!(step(&fast, engine) <= step(&slow, engine) * 1.01, "{} {:?} {:?}", which, slow, fast);
        }
    }

    #[test]
    fn more_memory_never_makes_a_smaller_window(gib in 10u64..200, more in 0u64..100, ctx in 1u32..2000) {
        let with = |gib: u64| Rates { device_bytes: gib * GIB, ..card() };
        let request = PlanRequest::new(ctx * 256);
        let (small, large) = (planned(&with(gib), &request), planned(&with(gib + more), &request));
        prop_assert!(small.window_cells <= large.window_cells);
        prop_assert_eq!(small.window_bytes + small.tail_bytes, large.window_bytes + large.tail_bytes);
        prop_assert!(small.fit != PlanFit::Resident || large.fit == PlanFit::Resident);
    }

    #[test]
    fn the_engine_of_a_context_is_the_faster_one(link in rate(), host in rate(), tail in 0u64..(64 * GIB), compute in 0f64..0.1, nodes in 0u32..100) {
        let rates = ffi::rkv_engine_rates { link_bytes_s: link, link_latency_s: 1e-5, host_bytes_s: host };
        // SAFETY: the struct is valid for the call, which does not keep it.
        let chosen = unsafe { ffi::rkv_planner_engine(&raw const rates, tail, nodes, compute) };
        let tail = tail as f64;
        let stream = compute.max(tail / link);
        let alone = compute + tail / host + f64::from(nodes) * 2e-5;
        prop_assert!(chosen.step_s <= stream.min(alone) * 1.0301);
        prop_assert!((0.0..=1.0).contains(&chosen.host_share));
        let asked = [(ffi::RKV_PLAN_STREAM, 0.0), (ffi::RKV_PLAN_HOST, 1.0)];
        prop_assert!(asked.iter().all(|(engine, share)| chosen.engine != *engine || chosen.host_share == *share));
        if tail == 0.0 {
            prop_assert_eq!(chosen.engine, ffi::RKV_PLAN_STREAM);
        }
    }
}
