//! Control arms: a fault in a spilled cache must show in the logits. In a program of its own, because a fault holds for
//! the whole process.

mod common;

use std::sync::Mutex;

use common::{backend, logits_after, some_tokens, tiny};
use rolling_kv::{Context, ContextParams, Fault, Order, RollingKv, Row};

/// One test at a time: the faults of one would be seen by the others.
static ALONE: Mutex<()> = Mutex::new(());

const WINDOW: u32 = 64;

fn spilled(model: &rolling_kv::Model) -> Context<'_> {
    let spill = RollingKv::window_cells(WINDOW)
        .order(Order::Tiled)
        .tile_cells(32);
    model
        .context(&ContextParams::new(512).n_ubatch(64).rolling_kv(spill))
        .expect("the context is made")
}

fn run(context: &mut Context<'_>) -> Vec<u32> {
    let mut logits = logits_after(context, 0, &some_tokens(150, 1));
    logits.extend(logits_after(context, 0, &some_tokens(1, 2)));
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn without_a_fault_two_runs_are_equal() {
    let _alone = alone();
    let backend = backend();
    let model = tiny::model(&backend);
    assert!(run(&mut spilled(&model)) == run(&mut spilled(&model)));
}

#[test]
fn every_fault_shows_in_the_logits_and_ends_with_its_guard() {
    let _alone = alone();
    let backend = backend();
    let model = tiny::model(&backend);
    let expected = run(&mut spilled(&model));
    for fault in [
        Fault::DropTile,
        Fault::SwapMerge,
        Fault::StaleTile,
        Fault::WrongPart,
    ] {
        let guard = fault.inject();
        let found = run(&mut spilled(&model));
        drop(guard);
        assert!(found != expected, "{fault:?} is not seen");
        assert!(
            run(&mut spilled(&model)) == expected,
            "{fault:?} outlives its guard"
        );
    }
}

#[test]
fn keys_of_the_tail_that_are_not_turned_show_in_the_logits() {
    let _alone = alone();
    let model = tiny::model(&backend());
    let moved = |faulty: bool| {
        let mut context = spilled(&model);
        run(&mut context);
        let _guard = faulty.then(|| Fault::MoveWindow.inject());
        context.memory().shift(0, 40.., 5).expect("it moves");
        let logits = logits_after(&mut context, 0, &some_tokens(1, 3));
        logits
            .iter()
            .map(|logit| logit.to_bits())
            .collect::<Vec<_>>()
    };
    let expected = moved(false);
    assert!(moved(true) != expected, "it is not seen");
    assert!(moved(false) == expected, "it outlives its guard");
}

#[test]
fn a_flipped_byte_of_a_tail_cell_shows_in_the_logits() {
    let _alone = alone();
    let backend = backend();
    let model = tiny::model(&backend);
    let mut found = Vec::new();
    for flip in [false, true] {
        let mut context = spilled(&model);
        run(&mut context);
        if flip {
            let (_, mut row) = context
                .read_cell(0, Row::V, 0, WINDOW + 20)
                .expect("the cell exists");
            row[1] ^= 0x04;
            context
                .overwrite_cell(0, Row::V, 0, WINDOW + 20, &row)
                .expect("the cell exists");
        }
        found.push(logits_after(&mut context, 0, &some_tokens(1, 3)));
    }
    assert!(found[0] != found[1]);
}

#[test]
fn a_move_that_breaks_off_is_an_error_until_the_context_is_cleared() {
    let _alone = alone();
    let model = tiny::model(&backend());
    let expected = run(&mut spilled(&model));
    let mut context = spilled(&model);
    run(&mut context);
    {
        let _guard = Fault::MoveBreaks.inject();
        context.memory().shift(0, 40.., 5).expect("it is noted");
        let error = context.append(0, &some_tokens(1, 3)).unwrap_err();
        assert!(error.to_string().contains("half way"), "{error}");
    }
    context.memory().clear().expect("it is cleared");
    assert!(run(&mut context) == expected, "and works as a new one");
}
