//! The CUDA module of the fixture, which is C: where it is built, what is built for it, and where it is put.

mod common;

use common::{Fixture, assert_says, build, has_tools};
use rolling_kv_stage::cuda::Archs;
use rolling_kv_stage::{Error, Plan, Variant};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A toolkit whose compiler nobody runs.
const TOOLKIT: [&str; 6] = [
    "bin/nvcc",
    "include/cuda_runtime.h",
    "include/cublas_v2.h",
    "lib/libcudart.so.13",
    "lib/libcublas.so.13",
    "lib/libcublasLt.so.13",
];

fn add_toolkit(fixture: &Fixture, files: &[&str]) {
    let root = fixture.target().join("tools/cuda/nvidia/cu13");
    for file in files {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn plan(fixture: &Fixture) -> Plan {
    let archs = Archs::parse("86,90").unwrap();
    let plan = fixture.plan(Variant::Patched);
    plan.with_cuda(true).with_archs(archs)
}

fn holds(file: &Path, text: &str) -> bool {
    let content = std::fs::read(file).unwrap();
    content
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn the_module_alone_compiles_nothing_of_llama() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    add_toolkit(&fixture, &TOOLKIT);
    let module = plan(&fixture).stage().unwrap().compile_cuda().unwrap();
    assert!(module.base().is_file());
    assert!(holds(&module.file, "86-real,90"), "it is for other cards");
    let bin = module.file.parent().unwrap();
    assert!(!bin.join("libllama.so").exists() && !bin.join("libggml-cpu.so").exists());
    assert!(!fixture.target().join("rolling-kv/cpu/build").exists());
    assert_says(
        &module.stamp,
        &["llama.cpp abc1234, patches ", ", kernels "],
    );
}

#[test]
fn with_the_feature_the_module_lies_beside_the_others_and_programs_use_that_folder() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    add_toolkit(&fixture, &TOOLKIT);
    let built = build(&plan(&fixture));
    let dir = fixture.target().join("rolling-kv/cpu");
    assert_eq!(built.bin_dir(), dir.join("bin-cuda"));
    for name in [
        "libggml-cuda.so",
        "libggml-cpu.so",
        "libllama.so.0",
        "libcublasLt.so.13",
    ] {
        assert!(built.bin_dir().join(name).is_file(), "{name}");
    }
    assert!(!dir.join("build/bin/libggml-cuda.so").exists());
    let stub = std::fs::read_to_string(dir.join("link-cuda/llama.s")).unwrap();
    assert_says(&stub, &["bin-cuda/libllama.so.0"]);

    let plain = build(&fixture.plan(Variant::Patched));
    assert_eq!(plain.bin_dir(), dir.join("build/bin"));
    assert!(built.bin_dir().join("libggml-cuda.so").is_file());
}

#[test]
fn without_a_toolkit_the_feature_is_refused_before_anything_is_built() {
    let fixture = Fixture::new();
    let env = fixture.env(&[("CUDACXX", "/nowhere/nvcc")]);
    let plan = Plan::new(&fixture.repo.root, &fixture.target(), Variant::Patched, env).unwrap();
    let error = plan.with_cuda(true).stage().unwrap_err();
    assert!(matches!(error, Error::Cuda { .. }), "{error}");
    assert_says(&error.to_string(), &["cargo xtask cuda setup"]);
    assert!(!fixture.target().join("rolling-kv").exists());
}

#[test]
fn a_toolkit_without_cublas_is_refused_by_name() {
    let fixture = Fixture::new();
    add_toolkit(&fixture, &TOOLKIT[..4]);
    let error = plan(&fixture).stage().unwrap_err();
    assert_says(&error.to_string(), &["no cuBLAS", "cargo xtask cuda setup"]);
}

#[test]
fn cards_that_the_environment_names_wrongly_are_refused() {
    let fixture = Fixture::new();
    let env = fixture.env(&[("ROLLING_KV_CUDA_ARCH", "sm_90")]);
    let plan = Plan::new(&fixture.repo.root, &fixture.target(), Variant::Patched, env).unwrap();
    let error = plan.with_cuda(true).stage().unwrap_err();
    assert_says(&error.to_string(), &["sm_90", "ROLLING_KV_CUDA_ARCH"]);
}
