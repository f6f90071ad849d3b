//! Every program's help lists every option.

use super::{OPTIONS, Rig};
use crate::error::Result;
use crate::native::PROGRAMS;

/// llama-bench has a parser of its own, which reads no environment variable.
const WITHOUT_ENVIRONMENT: &str = "llama-bench";

pub fn check(rig: &mut Rig) -> Result<()> {
    for program in PROGRAMS {
        let help = rig.program(program).arg("--help").quietly()?.success()?;
        let missing = missing(&help.text, *program != WITHOUT_ENVIRONMENT);
        rig.claim(
            &format!("{program} --help lists every option"),
            (!missing.is_empty()).then(|| format!("{} are not listed", missing.join(", "))),
        );
    }
    Ok(())
}

/// An entry of a help page starts this far to the left; the lines that follow are far to the right.
const INDENT_MAX: usize = 4;

fn starts_entry(line: &str) -> bool {
    let start = line.trim_start();
    start.starts_with('-') && line.len() - start.len() <= INDENT_MAX
}

/// The options, and with `environment` their variables, that a help page does not list: an option starts an entry, its
/// variable follows before the next entry.
fn missing(help: &str, environment: bool) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for option in &OPTIONS {
        let mut lines = help.lines().skip_while(|line| {
            !starts_entry(line) || line.split_whitespace().next() != Some(option.name)
        });
        if lines.next().is_none() {
            missing.push(option.name);
            continue;
        }
        let variable = format!("(env: {})", option.env);
        let mut own = lines.take_while(|line| !starts_entry(line));
        if environment && !own.any(|line| line.contains(&variable)) {
            missing.push(option.env);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let entry = |option: &super::super::Opt| {
            format!(
                "{} X    what it does, with\n          --kv-window-cells auto\n          (env: {})\n",
                option.name, option.env
            )
        };
        OPTIONS.iter().map(entry).collect()
    }

    #[test]
    fn a_page_that_lists_all_lacks_none() {
        assert!(missing(&page(), true).is_empty());
        let bare: String = OPTIONS
            .iter()
            .map(|option| format!("  {} <X>   what it does\n", option.name))
            .collect();
        assert!(missing(&bare, false).is_empty());
        assert_eq!(missing(&bare, true).len(), OPTIONS.len());
    }

    #[test]
    fn an_option_that_is_only_mentioned_is_not_listed() {
        let page = page().replace("--kv-order X", "see --kv-order");
        assert_eq!(missing(&page, true), ["--kv-order"]);
    }

    #[test]
    fn a_variable_of_another_option_does_not_count() {
        let page = page().replace("(env: LLAMA_ARG_KV_ORDER)", "");
        assert_eq!(missing(&page, true), ["LLAMA_ARG_KV_ORDER"]);
    }
}
