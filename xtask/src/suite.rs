//! `cargo xtask test` and `cargo xtask gates`: the steps, cheap ones first.

use std::process::ExitCode;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::report::{Outcome, Report};
use crate::steps::{
    benches, budget, clippy, collect_binaries, cuda_kernels, cuda_rehearsal, dependents,
    documentation, engines, engines_all, format, fresh_clone, freshness, gpu_script, kernel_tests,
    kernel_warnings, kinds_of_cache, logit_equivalence, logit_equivalence_faults, long_texts,
    model_fetch, moved_keys, moved_positions, native_build, needles, needles_all, page_in_browser,
    patches_check, perplexity, plans, program_options, run_equality, server_on_device,
    server_smoke, stock_build, tails, tests, tooling_tests, tools, upstream_tests,
    upstream_tests_all, upstream_tree, valgrind, valgrind_all,
};

/// A named step, and the steps without which it cannot run.
struct Step {
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&Place) -> Result<Outcome>,
}

const fn step(
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&Place) -> Result<Outcome>,
) -> Step {
    Step { name, needs, run }
}

/// Everything that `cargo xtask test` runs.
const TEST: &[Step] = &[
    step("format", &[], format),
    step("tools", &[], tools),
    step("upstream", &[], upstream_tree),
    step("patches", &["upstream"], patches_check),
    step("staging and xtask tests", &["tools"], tooling_tests),
    step("native build", &["tools", "patches"], native_build),
    step("kernel warnings", &["native build"], kernel_warnings),
    step("CUDA kernels", &["tools", "patches"], cuda_kernels),
    step("clippy", &["native build"], clippy),
    step("stock build", &["tools", "upstream"], stock_build),
    step("model", &["native build"], model_fetch),
    step("tests", &["native build", "stock build", "model"], tests),
    step("documentation", &["native build"], documentation),
    step("benches compile", &["native build"], benches),
    step("dependents", &["native build"], dependents),
    step("binaries", &["native build"], collect_binaries),
    step("server smoke", &["model"], server_smoke),
    step("server on a device", &["model"], server_on_device),
    step("moved positions", &["model"], moved_positions),
    step("freshness", &["native build"], freshness),
    step("kernel tests", &["model"], kernel_tests),
    step("valgrind", &["native build"], valgrind),
];

/// The gates: what must hold of a build, beside its tests.
const GATES: &[Step] = &[
    step("native build", &[], native_build),
    step("stock build", &[], stock_build),
    step("model", &["native build"], model_fetch),
    step("upstream tests", &["model"], upstream_tests),
    step("options", &["model"], program_options),
    step("run equality", &["model", "stock build"], run_equality),
    step("perplexity", &["model"], perplexity),
    step("logit equivalence", &["model"], logit_equivalence),
    step("kinds of cache", &["model"], kinds_of_cache),
    step("moved keys", &["model"], moved_keys),
    step("needles", &["model"], needles),
    step("tail engines", &["model"], engines),
    step("budget", &["model"], budget),
    step("plans", &["model"], plans),
    step("report in a browser", &["model"], page_in_browser),
    step("gpu script", &["model"], gpu_script),
];

/// What `--full` adds.
const HEAVY: &[Step] = &[
    step(
        "logit equivalence, faults",
        &["model"],
        logit_equivalence_faults,
    ),
    step("all needles", &["model"], needles_all),
    step("cost of a tail", &["model"], tails),
    step("all tail engines", &["model"], engines_all),
    step("CUDA rehearsal", &["model"], cuda_rehearsal),
    step("freshness", &["native build"], freshness),
    step("fresh clone", &[], fresh_clone),
    step("long texts", &["model"], long_texts),
    step("all upstream tests", &["model"], upstream_tests_all),
    step("valgrind over all API tests", &["model"], valgrind_all),
];

/// Runs the test steps, or those of them that `only` names with what they need.
pub fn test(place: &Place, only: &[String]) -> Result<ExitCode> {
    run(place, TEST.iter().collect(), only)
}

/// Runs the gates.
pub fn gates(place: &Place, full: bool, only: &[String]) -> Result<ExitCode> {
    let heavy = if full { HEAVY } else { &[] };
    run(place, GATES.iter().chain(heavy).collect(), only)
}

/// The names of the test steps, one a line.
pub fn list() {
    TEST.iter().for_each(|step| println!("{}", step.name));
}

fn run(place: &Place, steps: Vec<&Step>, only: &[String]) -> Result<ExitCode> {
    let wanted = wanted(&steps, only)?;
    let mut report = Report::new();
    let mut failed: Vec<&str> = Vec::new();
    for step in steps.into_iter().filter(|step| wanted.contains(&step.name)) {
        let passed = match step.needs.iter().find(|need| failed.contains(need)) {
            Some(need) => {
                report.blocked(step.name, need);
                false
            }
            None => report.step(step.name, || (step.run)(place)),
        };
        if !passed {
            failed.push(step.name);
        }
    }
    Ok(report.finish())
}

/// The steps to run: all, or those named and, first, what they need.
fn wanted(steps: &[&Step], only: &[String]) -> Result<Vec<&'static str>> {
    if only.is_empty() {
        return Ok(steps.iter().map(|step| step.name).collect());
    }
    let mut names: Vec<&'static str> = Vec::new();
    let mut open: Vec<&str> = only.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let Some(step) = steps.iter().find(|step| step.name == name) else {
            let known: Vec<&str> = steps.iter().map(|step| step.name).collect();
            return Err(Error::wrong(
                format!("there is no step called {name:?}"),
                format!("choose of: {}", known.join(", ")),
            ));
        };
        if !names.contains(&step.name) {
            names.push(step.name);
            open.extend(step.needs);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_brings_what_it_needs() {
        let steps: Vec<&Step> = TEST.iter().collect();
        let names = wanted(&steps, &["kernel warnings".to_owned()]).unwrap();
        for needed in [
            "kernel warnings",
            "native build",
            "tools",
            "patches",
            "upstream",
        ] {
            assert!(names.contains(&needed), "{needed}");
        }
        assert!(!names.contains(&"clippy"));
        assert_eq!(wanted(&steps, &[]).unwrap().len(), TEST.len());
    }

    #[test]
    fn an_unknown_step_is_refused_with_the_known_ones() {
        let steps: Vec<&Step> = TEST.iter().collect();
        assert!(
            wanted(&steps, &["fromat".to_owned()])
                .unwrap_err()
                .to_string()
                .contains("format")
        );
    }

    #[test]
    fn every_step_needs_only_steps_before_it() {
        let full: Vec<&Step> = GATES.iter().chain(HEAVY).collect();
        for steps in [TEST.iter().collect::<Vec<_>>(), full] {
            for (index, step) in steps.iter().enumerate() {
                for need in step.needs {
                    assert!(
                        steps[..index].iter().any(|earlier| earlier.name == *need),
                        "{} needs {need}",
                        step.name
                    );
                }
            }
        }
    }
}
