//! Which CPU module of `kernels/ggml.cmake` this machine would load. A stock build gets the same instruction sets, so that
//! the two can be compared.

use crate::error::{IoContext, Result};
use crate::upstream::Repo;

/// The features of the best variant that this machine can run; none where no variant fits.
///
/// # Errors
/// `kernels/ggml.cmake` cannot be read.
pub(crate) fn best_features(repo: &Repo) -> Result<Vec<String>> {
    let path = repo.kernels().join("ggml.cmake");
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    Ok(best(&text, has))
}

/// The longest feature list of a variant whose every feature is there.
fn best(cmake: &str, has: impl Fn(&str) -> bool) -> Vec<String> {
    let calls = cmake.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("ggml_add_cpu_backend_variant(")?
            .split(')')
            .next()
    });
    let lists = calls.map(|call| {
        call.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    lists
        .filter(|list| list.iter().all(|feature| has(feature)))
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[cfg(target_arch = "x86_64")]
fn has(feature: &str) -> bool {
    match feature {
        "SSE42" => is_x86_feature_detected!("sse4.2"),
        "AVX" => is_x86_feature_detected!("avx"),
        "AVX2" => is_x86_feature_detected!("avx2"),
        "BMI2" => is_x86_feature_detected!("bmi2"),
        "FMA" => is_x86_feature_detected!("fma"),
        "F16C" => is_x86_feature_detected!("f16c"),
        "AVX512" => {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
        }
        "AVX512_VBMI" => is_x86_feature_detected!("avx512vbmi"),
        "AVX512_VNNI" => is_x86_feature_detected!("avx512vnni"),
        "AVX512_BF16" => is_x86_feature_detected!("avx512bf16"),
        _ => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has(_feature: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::best;

    const VARIANTS: &str = "  ggml_add_cpu_backend_variant(old A B)\n# ggml_add(no X)\nggml_add_cpu_backend_variant(new A B C)\n";

    #[test]
    fn best_variant_is_the_longest_that_fits() {
        assert_eq!(best(VARIANTS, |_| true), ["A", "B", "C"]);
        assert_eq!(best(VARIANTS, |feature| feature != "C"), ["A", "B"]);
        assert!(best(VARIANTS, |feature| feature != "A").is_empty());
    }
}
