//! What cmake is told.

use crate::Variant;
use crate::cpu;
use crate::cuda::Archs;
use crate::error::Result;
use crate::upstream::{Repo, Upstream};

/// Instruction sets of x86 that are off in the plain CPU module, since no machine is sure to have them; `kernels/ggml.cmake`
/// adds the better modules. AMX stays off everywhere: some virtual machines report it and then trap on it.
const X86_OFF: [&str; 15] = [
    "SSE42",
    "AVX",
    "AVX2",
    "BMI2",
    "FMA",
    "F16C",
    "AVX_VNNI",
    "AVX512",
    "AVX512_VBMI",
    "AVX512_VNNI",
    "AVX512_BF16",
    "AMX_TILE",
    "AMX_INT8",
    "AMX_BF16",
    "NATIVE",
];

/// The same for every build.
const FIXED: [(&str, &str); 13] = [
    ("CMAKE_BUILD_TYPE", "Release"),
    ("BUILD_SHARED_LIBS", "ON"),
    ("GGML_BACKEND_DL", "ON"),
    ("GGML_OPENMP", "OFF"),
    ("GGML_CCACHE", "OFF"),
    ("LLAMA_OPENSSL", "OFF"),
    ("LLAMA_BUILD_UI", "OFF"),
    ("LLAMA_USE_PREBUILT_UI", "OFF"),
    ("LLAMA_BUILD_APP", "OFF"),
    ("LLAMA_BUILD_EXAMPLES", "OFF"),
    ("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON"),
    ("CMAKE_INSTALL_RPATH", "$ORIGIN"),
    ("CMAKE_EXPORT_COMPILE_COMMANDS", "ON"),
];

/// What the CPU's build has, and the CUDA module has no use for.
const PARTS: [&str; 4] = ["TESTS", "TOOLS", "SERVER", "COMMON"];

/// The `-D` options of the CPU's build, each as `NAME=VALUE`.
///
/// # Errors
/// `kernels/ggml.cmake` that cannot be read, for [`Variant::Stock`].
pub(crate) fn cpu(repo: &Repo, upstream: &Upstream, variant: Variant) -> Result<Vec<String>> {
    let on = match variant {
        Variant::Patched => Vec::new(),
        Variant::Stock => cpu::best_features(repo)?,
    };
    let mut options = common(upstream, &on, "ON");
    options.push("GGML_CUDA=OFF".to_owned());
    Ok(options)
}

/// The `-D` options of the CUDA module's build.
pub(crate) fn cuda(upstream: &Upstream, archs: &Archs) -> Vec<String> {
    let mut options = common(upstream, &[], "OFF");
    options
        .extend(["GGML_CUDA=ON", "GGML_CUDA_NO_VMM=ON", "GGML_CUDA_NCCL=OFF"].map(str::to_owned));
    options.push(format!("CMAKE_CUDA_ARCHITECTURES={}", archs.cmake()));
    options
}

/// What both have in common, so that ggml-base is the same; `on` are the instruction sets of the plain CPU module.
fn common(upstream: &Upstream, on: &[String], parts: &str) -> Vec<String> {
    let mut options: Vec<String> = FIXED
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    options.extend(PARTS.map(|name| format!("LLAMA_BUILD_{name}={parts}")));
    options.push(format!("LLAMA_BUILD_COMMIT={}", upstream.llama_cpp_commit));
    options.push(format!("LLAMA_BUILD_NUMBER={}", upstream.llama_cpp_build));
    for feature in X86_OFF {
        let value = if on.iter().any(|name| name == feature) {
            "ON"
        } else {
            "OFF"
        };
        options.push(format!("GGML_{feature}={value}"));
    }
    options
}
