//! Whether the CPU module that was chosen is safe here: everything it was compiled for was tried and works.

use serde::Serialize;

use super::probe::{Feature, Finding};

/// A name that ggml gives to what a CPU module was compiled for, and the features whose instructions it may use.
const USES: &[(&str, &[&str])] = &[
    ("SSE3", &["sse4.2"]),
    ("SSSE3", &["sse4.2"]),
    ("AVX", &["avx"]),
    ("AVX_VNNI", &["avx_vnni"]),
    ("AVX2", &["avx2"]),
    ("F16C", &["f16c"]),
    ("FMA", &["fma"]),
    ("BMI2", &["bmi2"]),
    (
        "AVX512",
        &["avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"],
    ),
    ("AVX512_VBMI", &["avx512_vbmi"]),
    ("AVX512_VNNI", &["avx512_vnni"]),
    ("AVX512_BF16", &["avx512_bf16"]),
    ("AMX_INT8", &["amx_tile", "amx_int8"]),
    ("NEON", &["neon"]),
    ("ARM_FMA", &["neon"]),
    ("FP16_VA", &["fp16"]),
    ("DOTPROD", &["dotprod"]),
    ("MATMUL_INT8", &["i8mm"]),
];

/// Names that stand for a way of working, not for instructions.
const NO_INSTRUCTIONS: &[&str] = &[
    "LLAMAFILE",
    "OPENMP",
    "REPACK",
    "KLEIDIAI",
    "ACCELERATE",
    "CPU_HBM",
    "SVE_CNT",
];

/// Features that every module of the architecture may use, whatever it was compiled for.
const ALWAYS: &[&str] = if cfg!(target_arch = "aarch64") {
    &["neon"]
} else {
    &[]
};

/// The answer, with its reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Safety {
    pub safe: bool,
    pub reason: String,
    /// What it was compiled for and what this program has no way of trying.
    pub untried: Vec<String>,
}

/// Compares what the module was compiled for with what was found.
pub fn judge(compiled_for: &[String], found: &[Feature]) -> Safety {
    let mut needed: Vec<&str> = ALWAYS.to_vec();
    let mut untried = Vec::new();
    for name in compiled_for {
        match USES.iter().find(|(known, _)| known == name) {
            Some((_, features)) => needed.extend(*features),
            None if NO_INSTRUCTIONS.contains(&name.as_str()) => {}
            None => untried.push(name.clone()),
        }
    }
    needed.sort_unstable();
    needed.dedup();
    let bad: Vec<_> = needed
        .iter()
        .filter_map(|name| complaint(name, found))
        .collect();
    let reason = if !bad.is_empty() {
        format!(
            "it was compiled for what does not work here: {}",
            bad.join(", ")
        )
    } else if needed.is_empty() {
        "it uses only what every processor of this architecture has".into()
    } else {
        format!(
            "each of the {} features that it was compiled for was executed here and works",
            needed.len()
        )
    };
    Safety {
        safe: bad.is_empty(),
        reason,
        untried,
    }
}

fn complaint(name: &str, found: &[Feature]) -> Option<String> {
    match found.iter().find(|feature| feature.name == name) {
        Some(feature) if feature.finding == Finding::Works => None,
        Some(feature) => Some(format!("{name} ({})", feature.finding.word())),
        None => Some(format!("{name} (not tried)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(findings: &[(&'static str, Finding)]) -> Vec<Feature> {
        findings
            .iter()
            .map(|(name, finding)| Feature {
                name,
                finding: finding.clone(),
            })
            .collect()
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_module_is_safe_if_all_it_needs_works() {
        let here = found(&[
            ("avx", Finding::Works),
            ("avx2", Finding::Works),
            ("neon", Finding::Works),
        ]);
        let safety = judge(&strings(&["AVX", "AVX2", "REPACK"]), &here);
        assert!(safety.safe, "{}", safety.reason);
        assert!(safety.untried.is_empty());
    }

    #[test]
    fn a_trap_in_what_a_module_needs_makes_it_unsafe() {
        let here = found(&[
            ("amx_tile", Finding::Traps),
            ("amx_int8", Finding::Works),
            ("neon", Finding::Works),
        ]);
        let safety = judge(&strings(&["AMX_INT8"]), &here);
        assert!(!safety.safe);
        assert!(
            safety.reason.contains("amx_tile (traps (SIGILL))"),
            "{}",
            safety.reason
        );
    }

    #[test]
    fn one_missing_part_of_avx512_makes_a_module_unsafe() {
        let mut here = found(&[
            ("avx512f", Finding::Works),
            ("avx512cd", Finding::Works),
            ("neon", Finding::Works),
        ]);
        here.extend(found(&[
            ("avx512bw", Finding::Works),
            ("avx512dq", Finding::NotReported),
        ]));
        here.extend(found(&[("avx512vl", Finding::Works)]));
        assert!(!judge(&strings(&["AVX512"]), &here).safe);
    }

    #[test]
    fn a_name_that_is_not_known_is_said_to_be_untried() {
        let here = found(&[("neon", Finding::Works)]);
        assert_eq!(judge(&strings(&["SVE"]), &here).untried, strings(&["SVE"]));
    }
}
