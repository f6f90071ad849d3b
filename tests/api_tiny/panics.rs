use std::ops::ControlFlow;

use rolling_kv::{LoadError, Model, ModelParams};

use crate::common::gguf_file::GgufFile;
use crate::common::{backend, tiny};

#[test]
fn a_progress_callback_that_panics_stops_the_loading() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), GgufFile::tiny_llama().bytes(1)).unwrap();
    let error =
        Model::load_with_progress(&backend(), file.path(), &ModelParams::default(), |done| {
            assert!(done < 0.3, "this is enough");
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(
        matches!(&error, LoadError::CallbackPanicked { message } if message.contains("this is enough")),
        "{error}"
    );
    Model::load(&backend(), file.path(), &ModelParams::default()).expect("the next load works");
}

#[test]
fn a_tensor_callback_that_panics_stops_the_making() {
    let description = tiny::describe(&tiny::Shape::default());
    let mut calls = 0;
    let error = description
        .build(&backend(), &ModelParams::default(), |slot, _| {
            calls += 1;
            assert!(calls < 4, "no more after {}", slot.name);
        })
        .unwrap_err();
    assert!(
        matches!(&error, LoadError::CallbackPanicked { message } if message.contains("no more")),
        "{error}"
    );
    assert_eq!(calls, 4, "nothing is called after the panic");
}
