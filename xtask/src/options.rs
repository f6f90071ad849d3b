//! The options step: llama.cpp's own programs, patched, are driven with a window, and with values that cannot work.

mod bench;
mod completion;
mod fit;
mod help;
mod line;
mod local;
mod perplexity;
mod refusals;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rolling_kv_stage::Variant;

use crate::error::{Error, Result};
use crate::model;
use crate::native::{self, PROGRAMS};
use crate::place::Place;
use crate::process::{Ended, Run, tail};
use crate::report::Counts;
use crate::story;

/// The longest that one program may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// One thread is the quickest on a machine that has other work too.
const THREADS: &str = "1";

/// Pairs of sentences of the text: about 2150 tokens, two chunks.
const PAIRS: usize = 140;

/// Pairs of sentences of the prompt: about 400 tokens.
const PROMPT_PAIRS: usize = 25;

/// An option of the programs.
struct Opt {
    name: &'static str,
    /// The environment variable of the programs that use llama.cpp's common parser.
    env: &'static str,
    /// A value that means nothing.
    bad: &'static str,
    /// What the refusal of that value says besides the name.
    expected: &'static str,
}

const OPTIONS: [Opt; 19] = [
    Opt {
        name: "--kv-residency-mode",
        env: "LLAMA_ARG_KV_RESIDENCY_MODE",
        bad: "on",
        expected: "off or window",
    },
    Opt {
        name: "--kv-window-cells",
        env: "LLAMA_ARG_KV_WINDOW_CELLS",
        bad: "-5",
        expected: "a number of cells or auto",
    },
    Opt {
        name: "--kv-vram-target",
        env: "LLAMA_ARG_KV_VRAM_TARGET",
        bad: "4GB",
        expected: "a number of MiB",
    },
    Opt {
        name: "--kv-resident-layers",
        env: "LLAMA_ARG_KV_RESIDENT_LAYERS",
        bad: "4-1",
        expected: "a list of layers like 0-4,11",
    },
    Opt {
        name: "--kv-order",
        env: "LLAMA_ARG_KV_ORDER",
        bad: "fast",
        expected: "auto or tiled",
    },
    Opt {
        name: "--kv-tail-tile",
        env: "LLAMA_ARG_KV_TAIL_TILE",
        bad: "33",
        expected: "a multiple of 32",
    },
    Opt {
        name: "--kv-schedule",
        env: "LLAMA_ARG_KV_SCHEDULE",
        bad: "late",
        expected: "ring or op",
    },
    Opt {
        name: "--kv-ring-depth",
        env: "LLAMA_ARG_KV_RING_DEPTH",
        bad: "many",
        expected: "a number of slots",
    },
    Opt {
        name: "--kv-copy-cells",
        env: "LLAMA_ARG_KV_COPY_CELLS",
        bad: "-1",
        expected: "a number of cells",
    },
    Opt {
        name: "--kv-tail-engine",
        env: "LLAMA_ARG_KV_TAIL_ENGINE",
        bad: "cpu",
        expected: "auto, stream, host or hybrid",
    },
    Opt {
        name: "--kv-tail-threads",
        env: "LLAMA_ARG_KV_TAIL_THREADS",
        bad: "all",
        expected: "a number of threads",
    },
    Opt {
        name: "--kv-tail-type-k",
        env: "LLAMA_ARG_KV_TAIL_TYPE_K",
        bad: "f32",
        expected: "f16, bf16, q8_0",
    },
    Opt {
        name: "--kv-tail-type-v",
        env: "LLAMA_ARG_KV_TAIL_TYPE_V",
        bad: "q2_k",
        expected: "f16, bf16, q8_0",
    },
    Opt {
        name: "--kv-shift",
        env: "LLAMA_ARG_KV_SHIFT",
        bad: "maybe",
        expected: "rerope or guard",
    },
    Opt {
        name: "--kv-shift-path",
        env: "LLAMA_ARG_KV_SHIFT_PATH",
        bad: "link",
        expected: "auto, host or device",
    },
    Opt {
        name: "--kv-local-layers",
        env: "LLAMA_ARG_KV_LOCAL_LAYERS",
        bad: "3-1",
        expected: "a list of layers like 0-4,11, or auto",
    },
    Opt {
        name: "--kv-local-file",
        env: "LLAMA_ARG_KV_LOCAL_FILE",
        bad: "/missing.json",
        expected: "rolling-kv gate budget",
    },
    Opt {
        name: "--kv-local-cells",
        env: "LLAMA_ARG_KV_LOCAL_CELLS",
        bad: "0",
        expected: "a number of tokens",
    },
    Opt {
        name: "--kv-local-first",
        env: "LLAMA_ARG_KV_LOCAL_FIRST",
        bad: "-1",
        expected: "a number of tokens",
    },
];

/// What the checks run, and what came of them so far.
#[derive(Clone)]
struct Rig {
    bin: PathBuf,
    model: PathBuf,
    text: PathBuf,
    /// The beginning of the text.
    prompt: PathBuf,
    counts: Counts,
}

/// Runs the checks of the options and prints a line for each.
pub fn run(place: &Place) -> Result<Counts> {
    let rig = prepare(place)?;
    // Every program runs on one thread, so that two checks at a time take no longer than one.
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| checked(&rig, &[help::check, refusals::check]));
        let first = checked(
            &rig,
            &[completion::check, local::check, bench::check, fit::check],
        );
        (first, second.join().expect("a check does not panic"))
    });
    let mut counts = first?;
    counts += second?;
    Ok(counts)
}

/// Placement changes no digit of a perplexity.
pub fn perplexity(place: &Place) -> Result<Counts> {
    checked(&prepare(place)?, &[perplexity::check])
}

/// What came of some checks, one after the other.
fn checked(rig: &Rig, checks: &[fn(&mut Rig) -> Result<()>]) -> Result<Counts> {
    let mut rig = rig.clone();
    checks.iter().try_for_each(|check| check(&mut rig))?;
    Ok(rig.counts)
}

fn prepare(place: &Place) -> Result<Rig> {
    let built = native::build(place, Variant::Patched, PROGRAMS)?;
    let scratch = place.work().join("options");
    fs::create_dir_all(&scratch).map_err(Error::file("make", &scratch))?;
    let write = |name: &str, pairs: usize| {
        let path = scratch.join(name);
        fs::write(&path, story::pairs(pairs).join(" ")).map_err(Error::file("write", &path))?;
        Ok::<_, Error>(path)
    };
    Ok(Rig {
        bin: built.bin_dir().to_owned(),
        model: model::fetch(place)?,
        text: write("text.txt", PAIRS)?,
        prompt: write("prompt.txt", PROMPT_PAIRS)?,
        counts: Counts::default(),
    })
}

impl Rig {
    /// A program without any of the options in its environment.
    fn program(&self, name: &str) -> Run {
        let run = Run::new(self.bin.join(name)).limit(LIMIT);
        OPTIONS
            .iter()
            .fold(run, |run, option| run.env_remove(option.env))
            .env_remove("LLAMA_ARG_FLASH_ATTN")
    }

    /// A program with the model.
    fn with_model(&self, name: &str) -> Run {
        self.program(name)
            .args(["-t", THREADS, "-m"])
            .arg(&self.model)
    }

    /// Counts and prints one claim; `wrong` says what was found instead.
    fn claim(&mut self, claim: &str, wrong: Option<String>) {
        match wrong {
            None => {
                println!("ok  {claim}");
                self.counts += Counts::ONE;
            }
            Some(found) => {
                println!("FAILED: {claim}\n  {}", found.replace('\n', "\n  "));
                self.counts += Counts::new(0, 1, 0);
            }
        }
    }
}

/// `None` if the two are the same, else both.
fn unequal<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Option<String> {
    (found != expected).then(|| format!("expected {expected:?}\nfound    {found:?}"))
}

/// `None` if the program ended by itself, with a failing exit code and each of `words`; else what it did.
fn not_refused(ended: &Ended, words: &[&str]) -> Option<String> {
    let missing: Vec<&&str> = words
        .iter()
        .filter(|word| !ended.text.contains(**word))
        .collect();
    let code = ended.status.code();
    if code.is_some_and(|code| code != 0) && missing.is_empty() {
        return None;
    }
    Some(format!(
        "expected a failing exit code and {words:?}\nfound    {}, without {missing:?}:\n{}",
        crate::process::in_words(ended.status),
        tail(&ended.text)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> Ended {
        Run::new("sh").args(["-c", script]).quietly().unwrap()
    }

    #[test]
    fn a_refusal_has_an_exit_code_and_the_words() {
        assert_eq!(
            not_refused(&ended("echo --x is bad; exit 1"), &["--x"]),
            None
        );
        for broken in [
            "echo --x is bad",
            "echo bad; exit 1",
            "echo --x; kill -6 $$",
        ] {
            assert!(not_refused(&ended(broken), &["--x"]).is_some(), "{broken}");
        }
    }

    #[test]
    fn claims_are_counted() {
        let mut rig = Rig {
            bin: PathBuf::new(),
            model: PathBuf::new(),
            text: PathBuf::new(),
            prompt: PathBuf::new(),
            counts: Counts::default(),
        };
        rig.claim("one is one", unequal(&1, &1));
        rig.claim("one is two", unequal(&1, &2));
        assert_eq!(rig.counts, Counts::new(1, 1, 0));
    }
}
