use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use rolling_kv::{DeviceKind, FailureKind, LoadError, LoadMode, Model, ModelParams, SplitMode};

use crate::common::gguf_file::GgufFile;
use crate::common::{Random, backend, fewer_if_slow, logits_after, some_tokens, tiny};

fn load(path: impl AsRef<Path>) -> Result<Model, LoadError> {
    Model::load(&backend(), path, &ModelParams::default())
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn a_whole_file_loads_and_runs() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    for mode in [LoadMode::Auto, LoadMode::Read, LoadMode::Mmap] {
        let model = Model::load(
            &backend(),
            file.path(),
            &ModelParams::default().load_mode(mode),
        )
        .unwrap();
        assert_eq!(
            (
                model.n_layer(),
                model.n_embd(),
                model.n_head(),
                model.n_head_kv()
            ),
            (1, 64, 2, 1)
        );
        let mut context = model
            .context(&rolling_kv::ContextParams::new(256).threads(1))
            .unwrap();
        logits_after(&mut context, 0, &some_tokens(4, 1));
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = load("/nowhere/at/all.gguf").unwrap_err();
    assert!(
        matches!(&error, LoadError::NotFound { path } if path == Path::new("/nowhere/at/all.gguf")),
        "{error}"
    );
    assert!(error.to_string().contains("rolling-kv fetch"), "{error}");
}

#[test]
fn a_directory_is_not_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let error = load(folder.path()).unwrap_err();
    assert!(matches!(error, LoadError::IsDirectory { .. }), "{error}");
}

#[test]
fn a_path_with_a_nul_byte_is_refused() {
    let error = load("model\0.gguf").unwrap_err();
    assert!(matches!(error, LoadError::BadPath { .. }), "{error}");
}

#[test]
fn foreign_files_are_not_models() {
    let mut foreign: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        (
            "text",
            b"This is not a model at all, but a letter to my aunt.".to_vec(),
        ),
        ("zeroes", vec![0; 4096]),
        (
            "elf",
            fs::read("/proc/self/exe")
                .map(|mut exe| {
                    exe.truncate(8192);
                    exe
                })
                .unwrap_or_default(),
        ),
        ("only the mark", b"GGUF".to_vec()),
        (
            "mark and rubbish",
            [b"GGUF".to_vec(), vec![0xFF; 64]].concat(),
        ),
    ];
    let mut random = Random::new(7);
    foreign.push((
        "noise",
        (0..4096).map(|_| random.next_u64() as u8).collect(),
    ));
    for (name, bytes) in foreign {
        let error = load(written(&bytes).path()).unwrap_err();
        assert!(
            matches!(error, LoadError::NotGguf { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn another_version_or_byte_order_is_named() {
    let mut bytes = GgufFile::tiny_llama().bytes(1);
    bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
    assert!(
        load(written(&bytes).path())
            .unwrap_err()
            .to_string()
            .contains("version is 1")
    );
    bytes[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(
        load(written(&bytes).path())
            .unwrap_err()
            .to_string()
            .contains("big-endian")
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let file = GgufFile::tiny_llama();
    let bytes = file.bytes(1);
    let header_len = file.header_len();
    let step = header_len.div_ceil(fewer_if_slow(200));
    for len in (0..header_len).step_by(step) {
        let error = load(written(&bytes[..len]).path()).unwrap_err();
        assert!(
            matches!(error, LoadError::NotGguf { .. }),
            "{len} bytes: {error}"
        );
    }
    for cut in [40, 1000, bytes.len() - header_len - 32] {
        let error = load(written(&bytes[..bytes.len() - cut]).path()).unwrap_err();
        let LoadError::Truncated { needs, has, .. } = error else {
            panic!("{error}")
        };
        assert!(needs > has && has == (bytes.len() - cut) as u64);
    }
}

#[test]
fn damaged_headers_never_end_the_process() {
    let file = GgufFile::tiny_llama();
    let whole = file.bytes(1);
    let header_len = file.header_len();
    let (mut loaded, mut refused) = (0, 0);
    for seed in 0..fewer_if_slow(1500) as u64 {
        let mut random = Random::new(seed);
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(header_len as u64) as usize;
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ (1 << random.below(8)),
                1 => random.next_u64() as u8,
                _ => 0xFF,
            };
        }
        println!("seed {seed}");
        match load(written(&bytes).path()) {
            Ok(_) => loaded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        loaded > 0 && refused > 0,
        "{loaded} loaded, {refused} refused"
    );
}

#[test]
fn impossible_hyperparameters_never_end_the_process() {
    let keys = [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "expert_count",
        "expert_used_count",
        "nextn_predict_layers",
        "expert_group_count",
        "vocab_size",
    ];
    for key in keys {
        for value in [0, 1, 3, 7, 513, 100_000, i32::MAX as u32, u32::MAX] {
            let mut file = GgufFile::tiny_llama();
            file.u32(&format!("llama.{key}"), value);
            println!("{key} = {value}");
            if let Ok(model) = load(written(&file.bytes(1)).path()) {
                try_to_run(&model);
            }
        }
    }
}

#[test]
fn a_missing_part_of_a_split_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = GgufFile::tiny_llama();
    file.u16("split.count", 2).u16("split.no", 0);
    let first = folder.path().join("m-00001-of-00002.gguf");
    fs::write(&first, file.bytes(1)).unwrap();
    let error = load(&first).unwrap_err();
    assert!(
        matches!(&error, LoadError::NotFound { path } if path.ends_with("m-00002-of-00002.gguf")),
        "{error}"
    );

    let odd = folder.path().join("odd.gguf");
    fs::copy(&first, &odd).unwrap();
    assert!(
        load(&odd)
            .unwrap_err()
            .to_string()
            .contains("-00001-of-00002.gguf")
    );
}

#[test]
fn a_split_model_loads_by_its_first_part() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = GgufFile::tiny_llama().split_in_two();
    let name = |index: u32| folder.path().join(format!("m-0000{index}-of-00002.gguf"));
    fs::write(name(1), first.bytes(1)).unwrap();
    fs::write(name(2), second.bytes(1)).unwrap();
    let split = load(name(1)).unwrap();
    let whole = load(written(&GgufFile::tiny_llama().bytes(1)).path()).unwrap();
    let logits = |model: &Model| {
        let mut context = model
            .context(&rolling_kv::ContextParams::new(256).threads(1))
            .unwrap();
        logits_after(&mut context, 0, &some_tokens(4, 1))
    };
    assert_eq!(logits(&split), logits(&whole));
    fs::write(name(2), &second.bytes(1)[..2000]).unwrap();
    assert!(matches!(
        load(name(1)).unwrap_err(),
        LoadError::NotGguf { .. } | LoadError::Truncated { .. }
    ));
}

#[test]
fn progress_runs_from_nothing_to_all() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    let mut seen = Vec::new();
    Model::load_with_progress(&backend(), file.path(), &ModelParams::default(), |done| {
        seen.push(done);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!((seen.first(), seen.last()), (Some(&0.0), Some(&1.0)));
}

#[test]
fn loading_can_be_cancelled_at_any_point() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    for stop_after in [0, 1, 5] {
        let mut calls = 0;
        let error =
            Model::load_with_progress(&backend(), file.path(), &ModelParams::default(), |_| {
                calls += 1;
                if calls > stop_after {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap_err();
        assert!(matches!(error, LoadError::Cancelled), "{error}");
        assert_eq!(
            calls,
            stop_after + 1,
            "nothing is called after the answer to stop"
        );
    }
}

#[test]
fn a_vocabulary_alone_loads_and_makes_no_context() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    let model = Model::load(
        &backend(),
        file.path(),
        &ModelParams::default().vocab_only(),
    )
    .unwrap();
    assert_eq!(model.vocab().len() as usize, tiny::n_vocab());
    let error = model
        .context(&rolling_kv::ContextParams::new(256))
        .unwrap_err();
    assert!(
        matches!(error, rolling_kv::ContextError::VocabOnly),
        "{error}"
    );
}

#[test]
fn metadata_is_read_as_text() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    let model = load(file.path()).unwrap();
    assert_eq!(
        model.metadata("general.architecture").as_deref(),
        Some("llama")
    );
    assert_eq!(model.metadata("llama.block_count").as_deref(), Some("1"));
    assert_eq!(model.metadata("no.such.key"), None);
    assert_eq!(model.metadata("with\0nul"), None);
    let entries = model.metadata_entries();
    assert!(
        entries.contains(&("llama.embedding_length".into(), "64".into())),
        "{entries:?}"
    );
    assert_eq!(model.chat_template(None), None);
    assert!(model.size_bytes() > 0 && model.n_params() > 0 && !model.description().is_empty());
}

#[test]
fn the_fingerprint_tells_weights_apart_and_nothing_else() {
    let fingerprint = |file: &GgufFile, seed| {
        load(written(&file.bytes(seed)).path())
            .unwrap()
            .fingerprint()
    };
    let file = GgufFile::tiny_llama();
    let mut named = file.clone();
    named.text("general.name", "the same weights under another name");
    assert_eq!(fingerprint(&file, 1), fingerprint(&file, 1));
    assert_eq!(fingerprint(&file, 1), fingerprint(&named, 1));
    assert_ne!(fingerprint(&file, 1), fingerprint(&file, 2));
    let read = Model::load(
        &backend(),
        written(&file.bytes(1)).path(),
        &ModelParams::default()
            .keep_layout()
            .load_mode(LoadMode::Read),
    );
    assert_eq!(fingerprint(&file, 1), read.unwrap().fingerprint());
}

#[test]
fn parameters_that_name_no_device_are_refused() {
    let file = written(&GgufFile::tiny_llama().bytes(1));
    let backend = backend();
    let cpu = backend
        .devices()
        .into_iter()
        .find(|device| device.kind() == DeviceKind::Cpu)
        .expect("there is a CPU");
    let cases = [
        ModelParams::default().devices(&[cpu]),
        ModelParams::default().main_device(u32::MAX),
        ModelParams::default().tensor_split(&[0.0, 0.0]),
        ModelParams::default().tensor_split(&[f32::NAN]),
        ModelParams::default().tensor_split(&[-1.0, 2.0]),
        ModelParams::default().tensor_split(&[1.0; 100]),
    ];
    for params in cases {
        let error = Model::load(&backend, file.path(), &params).unwrap_err();
        assert!(matches!(error, LoadError::Parameter { .. }), "{error}");
    }
    let params = ModelParams::default()
        .devices(&[])
        .gpu_layers(u32::MAX)
        .split_mode(SplitMode::Row)
        .tensor_split(&[1.0]);
    Model::load(&backend, file.path(), &params).expect("the CPU alone loads");
}

/// Whether it runs or is refused does not matter, only that the process lives on.
pub fn try_to_run(model: &Model) {
    if let Ok(mut context) = model.context(&rolling_kv::ContextParams::new(256).threads(1)) {
        let _ = context.append(0, &some_tokens(3, 1));
    }
}

#[test]
fn an_assertion_of_llama_cpp_is_an_error() {
    let mut file = GgufFile::tiny_llama();
    file.u32("llama.block_count", 0);
    let error = load(written(&file.bytes(1)).path()).unwrap_err();
    let LoadError::Failed(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!(failure.kind(), FailureKind::Assertion);
    assert!(failure.text().contains("GGML_ASSERT"), "{failure}");
}
