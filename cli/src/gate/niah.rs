//! `rolling-kv gate niah`.

use rolling_kv::{ModelParams, TailEngine};
use rolling_kv_gates::{Inject, Niah, NiahReport, noise_text};
use serde_json::json;

use super::args::NiahArgs;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, read_text, with_bars};
use crate::line::Asked;
use crate::source::Source;
use crate::{device, run, ui};

/// Words of the built-in essay.
const ESSAY_WORDS: usize = 20_000;

pub fn run(args: &NiahArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let text = args.text.as_deref().map(read_text).transpose()?;
    let gate = Niah {
        tasks: args.tasks.clone(),
        lengths: args.lengths.clone(),
        spots: args.depths.clone(),
        window_percent: args.window_percent,
        engine: TailEngine::from(args.tail_engine),
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        essay: text
            .clone()
            .unwrap_or_else(|| noise_text(args.seed, ESSAY_WORDS)),
        inject: args.inject.map(Into::into),
        thresholds: asked.thresholds()?,
    };
    if gate.inject == Some(Inject::Flip) {
        return Err(GateCommandError::NoFlip);
    }
    let harness = Harness::gate("niah", &args.subject, None, &source, asked)?;
    harness.announce();

    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, text.as_deref())?;
    let report = with_bars(|progress| gate.run(&model, &mut store, progress))?;
    print(&report);
    let mut windows: Vec<u32> = report.asked.iter().map(|one| one.window_cells).collect();
    windows.dedup();
    harness.close(Found {
        judged: &report.judged,
        n_ctx: report.asked.iter().map(|one| one.n_ctx).max().unwrap_or(0),
        window_cells: windows,
        device: args.device.as_ref(),
        engine: report.engine,
        seed: gate.seed,
        inject: json!(gate.inject),
        metrics: metrics(&report),
        page: &|settings| Ok(report.html(settings)),
        picture: &|| Ok(String::new()),
        accepted: None,
    })
}

fn print(report: &NiahReport) {
    for score in &report.scores {
        let (lengths, spots) = report.grid(&score.task);
        ui::print(&format!(
            "\n{}: mean score {:.2} resident, {:.2} spilled (score resident/spilled, = where every logit is equal)",
            score.task, score.resident, score.spilled
        ));
        let head: String = spots.iter().map(|spot| format!("{spot:>13}")).collect();
        ui::print(&format!("{:>8}{head}", "tokens"));
        for length in lengths {
            let cells: String = spots
                .iter()
                .map(|spot| {
                    report
                        .at(&score.task, length, spot)
                        .map_or(format!("{:>13}", "-"), |one| {
                            format!(
                                "  {:.2}/{:.2} {}",
                                one.resident.score,
                                one.spilled.score,
                                if one.equal() { "=" } else { "!" }
                            )
                        })
                })
                .collect();
            ui::print(&format!("{length:>8}{cells}"));
        }
    }
    ui::print("");
}
