//! `rolling-kv profile`: where each layer and head of a model looks.

use std::path::PathBuf;

use clap::Args;
use rolling_kv::{Backend, ModelParams};
use rolling_kv_gates::{Profile, ProfileReport, noise_text};
use serde_json::json;

use crate::gate::harness::{Harness, metrics, read_text, row, with_bars};
use crate::gate::{GateCommandError, Subject};
use crate::line::Asked;
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
pub fn profile(args: &ProfileArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
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
    let plot = args.plot.as_deref();
    let harness = Harness::command("profile", &args.subject, plot, &source, asked)?;
    harness.announce();
    let backend = Backend::init()?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| profile.run(&model, progress))?;
    print(&report);
    harness.json(|| {
        json!({
            "profile": "locality",
            "model": source.to_string(),
            "n_ctx": report.length,
            "seed": args.seed,
            "metrics": metrics(&report),
        })
    })?;
    harness.page(&|settings| report.html(settings))?;
    harness.picture(&|| report.svg())?;
    Ok(exit::OK)
}

fn print(report: &ProfileReport) {
    ui::print(&format!("\n{}\n", report.caption()));
    ui::print(&row(9, &ProfileReport::HEAD));
    for layer in report.layers() {
        ui::print(&row(9, &report.cells(layer)));
    }
    ui::print(&format!("\n{}", report.summary()));
}
