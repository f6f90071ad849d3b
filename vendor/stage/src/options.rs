//! What cmake is told.

use crate::Variant;
use crate::cpu;
use crate::env::Env;
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
const FIXED: [(&str, &str); 17] = [
    ("CMAKE_BUILD_TYPE", "Release"),
    ("BUILD_SHARED_LIBS", "ON"),
    ("GGML_BACKEND_DL", "ON"),
    ("GGML_OPENMP", "OFF"),
    ("GGML_CCACHE", "OFF"),
    ("LLAMA_OPENSSL", "OFF"),
    ("LLAMA_BUILD_UI", "OFF"),
    ("LLAMA_USE_PREBUILT_UI", "OFF"),
    ("LLAMA_BUILD_APP", "OFF"),
    ("LLAMA_BUILD_TESTS", "ON"),
    ("LLAMA_BUILD_TOOLS", "ON"),
    ("LLAMA_BUILD_SERVER", "ON"),
    ("LLAMA_BUILD_EXAMPLES", "OFF"),
    ("LLAMA_BUILD_COMMON", "ON"),
    ("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON"),
    ("CMAKE_INSTALL_RPATH", "$ORIGIN"),
    ("CMAKE_EXPORT_COMPILE_COMMANDS", "ON"),
];

/// The `-D` options of a build, each as `NAME=VALUE`.
///
/// # Errors
/// `kernels/ggml.cmake` that cannot be read, for [`Variant::Stock`].
pub(crate) fn all(
    repo: &Repo,
    upstream: &Upstream,
    variant: Variant,
    cuda: bool,
    env: &Env,
) -> Result<Vec<String>> {
    let mut options: Vec<String> = FIXED
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    options.push(format!("LLAMA_BUILD_COMMIT={}", upstream.llama_cpp_commit));
    options.push(format!("LLAMA_BUILD_NUMBER={}", upstream.llama_cpp_build));
    let on = match variant {
        Variant::Patched => Vec::new(),
        Variant::Stock => cpu::best_features(repo)?,
    };
    for feature in X86_OFF {
        let value = if on.iter().any(|name| name == feature) {
            "ON"
        } else {
            "OFF"
        };
        options.push(format!("GGML_{feature}={value}"));
    }
    options.push(format!("GGML_CUDA={}", if cuda { "ON" } else { "OFF" }));
    if cuda {
        let architectures = env.text("ROLLING_KV_CUDA_ARCH").unwrap_or("80;86;89;90");
        options.extend([
            "GGML_CUDA_NO_VMM=ON".to_owned(),
            "GGML_CUDA_NCCL=OFF".to_owned(),
        ]);
        options.push(format!("CMAKE_CUDA_ARCHITECTURES={architectures}"));
    }
    Ok(options)
}
