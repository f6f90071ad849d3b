use rolling_kv::{LoadError, ModelParams, TensorType, UserModel};

use super::load::try_to_run;
use crate::common::{backend, logits_after, some_tokens, tiny};

#[test]
fn a_described_model_without_what_it_needs_is_refused() {
    let build = |model: UserModel| model.build(&backend(), &ModelParams::default(), |_, _| {});
    let error = build(UserModel::new("llama")).unwrap_err();
    assert!(error.to_string().contains("context_length"), "{error}");
    let error = build(UserModel::new("no such architecture")).unwrap_err();
    assert!(matches!(error, LoadError::Failed(_)), "{error}");
    for (model, key) in [
        (UserModel::new("llama").u32("", 1), ""),
        (UserModel::new("llama").u32("a\0b", 1), "a\0b"),
        (UserModel::new("llama").text("a", "\0"), "a"),
        (UserModel::new("llama").texts("a", &["\0".into()]), "a"),
        (UserModel::new("llama").tensor_type("", TensorType::F16), ""),
        (
            UserModel::new("llama").tensor_type(&"x".repeat(64), TensorType::F16),
            &"x".repeat(64),
        ),
        (
            UserModel::new("llama")
                .tensor_type("x", TensorType::F16)
                .tensor_type("x", TensorType::F32),
            "x",
        ),
    ] {
        let error = build(model).unwrap_err();
        assert!(
            matches!(&error, LoadError::Metadata { key: found, .. } if found == key),
            "{error}"
        );
    }
}

#[test]
fn a_described_model_with_impossible_numbers_never_ends_the_process() {
    for key in [
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
    ] {
        for value in [0, 1, 3, 7, 513, u32::MAX] {
            println!("{key} = {value}");
            let model = tiny::describe(&tiny::Shape::default()).u32(&format!("llama.{key}"), value);
            if let Ok(model) = model.build(&backend(), &ModelParams::default(), |_, values| {
                values.fill(0.1)
            }) {
                try_to_run(&model);
            }
        }
    }
}

#[test]
fn tensors_beyond_the_memory_are_refused() {
    let model = tiny::describe(&tiny::Shape::default()).u32("llama.feed_forward_length", 1 << 31);
    let error = model
        .build(&backend(), &ModelParams::default(), |_, _| {})
        .unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::NotEnoughMemory { .. } | LoadError::Failed(_)
        ),
        "{error}"
    );
}

#[test]
fn tensors_can_be_stored_in_other_types() {
    let backend = backend();
    let logits = |kind: Option<TensorType>| {
        let mut description = tiny::describe(&tiny::Shape::default());
        for name in [
            "blk.0.attn_q.weight",
            "blk.1.ffn_up.weight",
            "output.weight",
        ] {
            description = match kind {
                Some(kind) => description.tensor_type(name, kind),
                None => description,
            };
        }
        let model = tiny::finish(description, &backend, 1);
        let mut context = model
            .context(&rolling_kv::ContextParams::new(256).threads(1))
            .unwrap();
        (
            logits_after(&mut context, 0, &some_tokens(8, 1)),
            model.fingerprint(),
        )
    };
    let (reference, mark) = logits(None);
    for kind in [
        TensorType::F16,
        TensorType::Bf16,
        TensorType::Q8_0,
        TensorType::Q4_0,
        TensorType::Q4_1,
    ] {
        let (stored, other_mark) = logits(Some(kind));
        let distance = crate::common::nmse(&reference, &stored);
        assert!(distance > 0.0 && distance < 0.2, "{kind:?}: {distance}");
        assert_ne!(mark, other_mark);
    }
}
