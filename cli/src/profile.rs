//! `rolling-kv profile`: where each layer and head of a model looks.

use std::path::PathBuf;

use clap::Args;
use rolling_kv::{Backend, ModelParams};
use rolling_kv_gates::{Profile, ProfileReport, noise_text};
use serde_json::json;

use crate::gate::files::{check_folder, read_text, with_bars, write_json, write_plot};
use crate::gate::{GateCommandError, Subject};
use crate::run::{self, parse};
use crate::source::Source;
use crate::{exit, ui};

/// The options of `rolling-kv profile`.
#[derive(Args)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// Tokens of the text, exactly
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Where the needle stands, in percent of the text
    #[arg(long, value_name = "P", default_value_t = 50.0, value_parser = parse::percent)]
    pub depth: f64,

    /// CPU threads
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the needle and of the built-in text
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Text around the needle, instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Words of the built-in text.
const WORDS: usize = 20_000;

/// Measures, prints a table, and writes what was asked for.
pub fn profile(args: &ProfileArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    for file in args.subject.json.iter().chain(&args.plot) {
        check_folder(file)?;
    }
    let essay = match &args.text {
        Some(file) => read_text(file)?,
        None => noise_text(args.seed, WORDS),
    };
    let profile = Profile {
        length: args.ctx,
        depth: args.depth,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        essay,
    };
    ui::print(&format!(
        "profile: model {}, {} tokens, needle at {}%, seed {}",
        source, profile.length, profile.depth, profile.seed
    ));
    let backend = Backend::init()?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| profile.run(&model, progress))?;
    print(&report);
    if let Some(file) = &args.subject.json {
        let object = json!({
            "profile": "locality",
            "model": source.to_string(),
            "n_ctx": report.length,
            "seed": args.seed,
            "metrics": report,
        });
        write_json(file, &object)?;
    }
    if let Some(file) = &args.plot {
        write_plot(file, report.svg())?;
    }
    Ok(exit::OK)
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn print(report: &ProfileReport) {
    ui::print(&format!(
        "\nshares of attention weight in percent, mean of a layer's heads over the queries from position {} on;\nthe first {} positions count apart; the needle by the last queries, which ask for it\n",
        report.first_query, report.first_positions
    ));
    ui::print(&format!(
        "{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "layer", "first", "<= 3", ">= 64", ">= 256", ">= 1024", "needle", "best head"
    ));
    for layer in report.layers() {
        let mean =
            |value: fn(&rolling_kv_gates::HeadProfile) -> f64| percent(report.layer(layer, value));
        let best = report
            .heads
            .iter()
            .filter(|head| head.layer == layer)
            .map(|head| head.needle)
            .fold(0.0, f64::max);
        ui::print(&format!(
            "{layer:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12}",
            mean(|head| head.first),
            mean(|head| head.within_3),
            mean(|head| head.beyond_64),
            mean(|head| head.beyond_256),
            mean(|head| head.beyond_1024),
            mean(|head| head.needle),
            percent(best)
        ));
    }
    ui::print(&format!(
        "\nmean of all heads: {} within 3 positions, {} on the first {}, {} at 256 and farther without those",
        percent(report.mean(|head| head.within_3)),
        percent(report.mean(|head| head.first)),
        report.first_positions,
        percent(report.mean(|head| head.beyond_256))
    ));
}
