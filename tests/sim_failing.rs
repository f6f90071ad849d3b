//! Each allocation of a simulated device fails once, the first, the second and so on: what could not be made is an error that says
//! so, nothing of it is left behind, and the next try works. There is one device a process, so each runs in one of its own.

mod common;

use std::collections::BTreeSet;
use std::process::Command;

use common::sim::{TILE, prompt_and_decode, shape};
use common::tiny;
use rolling_kv::{
    Context, ContextError, ContextParams, FailureKind, LoadError, Model, ModelParams, Order,
    RollingKv,
};

/// Which allocation fails, in a process that was started for it.
const NUMBER: &str = "ROLLING_KV_TEST_SIM_FAIL";

fn params(spill: RollingKv) -> ContextParams {
    ContextParams::new(256)
        .n_ubatch(32)
        .threads(1)
        .rolling_kv(spill.order(Order::Tiled).tile_cells(TILE))
}

/// What was being made when memory ran out.
fn of_context(error: &ContextError) -> &'static str {
    let text = error.to_string();
    let ContextError::Failed(failure) = error else {
        panic!("{error:?}");
    };
    assert_eq!(failure.kind(), FailureKind::NoMemory, "{text}");
    [
        "staging ring",
        "the tail",
        "the window",
        "output buffer",
        "compute",
    ]
    .into_iter()
    .find(|what| text.contains(what))
    .unwrap_or_else(|| panic!("the error does not name what it was: {text}"))
}

fn of_model(error: &LoadError) -> &'static str {
    let text = error.to_string();
    let LoadError::Failed(failure) = error else {
        panic!("{error:?}");
    };
    assert_eq!(failure.kind(), FailureKind::NoMemory, "{text}");
    "the model"
}

#[test]
fn as_a_child_one_allocation_fails_once() {
    let Ok(number) = std::env::var(NUMBER) else {
        return;
    };
    let backend = common::backend();
    let devices = backend
        .simulate(&format!("mem=64MiB,link=4GB/s,latency=1us,fail={number}"))
        .expect("the device is added");
    let free = || devices[0].memory_bytes().0;
    let before = free();
    let spill = || RollingKv::window_cells(64);
    let make = || -> Result<Model, LoadError> {
        let shape = shape(2);
        tiny::describe(&shape).build(&backend, &ModelParams::default(), |slot, values| {
            tiny::weights(&slot.name, shape.seed, values)
        })
    };
    let mut failed = "nothing";
    let model = make().unwrap_or_else(|error| {
        failed = of_model(&error);
        assert_eq!(free(), before, "a model that failed left something behind");
        make().expect("only one allocation fails")
    });
    let with_weights = free();
    let mut context: Context<'_> = model.context(&params(spill())).unwrap_or_else(|error| {
        failed = of_context(&error);
        assert_eq!(
            free(),
            with_weights,
            "a context that failed left something behind"
        );
        model
            .context(&params(spill()))
            .expect("only one allocation fails")
    });
    let found = prompt_and_decode(&mut context, 0, 200);
    assert!(context.staging().is_some_and(|staging| staging.bytes > 0));
    drop(context);
    assert_eq!(free(), with_weights);

    let shape = shape(2);
    let params_cpu = ModelParams::default().devices(&[]);
    let cpu = tiny::finish_with(tiny::describe(&shape), &backend, &params_cpu, shape.seed);
    let mut resident = cpu
        .context(&params(RollingKv::resident()))
        .expect("it is made");
    assert!(prompt_and_decode(&mut resident, 0, 200) == found);
    println!("failed: {failed}");
}

#[test]
fn whichever_allocation_fails_nothing_is_left_and_the_next_try_works() {
    let mut seen = BTreeSet::new();
    for number in 1..=24 {
        let output = Command::new(std::env::current_exe().expect("the test program has a path"))
            .args([
                "--exact",
                "as_a_child_one_allocation_fails_once",
                "--nocapture",
            ])
            .env(NUMBER, number.to_string())
            .output()
            .expect("the test program starts again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "allocation {number}: {}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let failed = text.lines().find_map(|line| line.split_once("failed: "));
        let failed = failed.expect("the child says what failed").1.to_owned();
        println!("allocation {number}: {failed}");
        if failed == "nothing" {
            break;
        }
        seen.insert(failed);
    }
    let all = [
        "compute",
        "output buffer",
        "staging ring",
        "the model",
        "the tail",
        "the window",
    ];
    assert!(seen.iter().eq(all), "{seen:?}");
}
