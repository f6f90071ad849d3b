//! `rolling-kv run`: continues a text, or answers a question, with a model.

mod args;
mod error;
mod generate;
pub mod parse;
mod prompt;
mod report;
mod sampling;
mod setup;
mod staging;
mod target;
mod threads;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Instant;

use rolling_kv::{Context, Model};

pub use args::{CACHE_TYPES, EngineArg, RunArgs, TAIL_TYPES};
pub use error::RunError;
pub use setup::kv_type;
pub use threads::fitting as fitting_threads;

use crate::{device, exit, interrupt, models, ui};
use generate::Generation;
use report::{ModelJson, OptionsJson, Outcome, ResidencyJson, RunJson, StopReason};
use staging::StagingJson;

/// Runs the command and answers the exit code.
pub fn run(args: &RunArgs) -> Result<u8, RunError> {
    let text = prompt::text(&args.prompt)?;
    let path = models::resolve(&args.model)?;
    let seed = setup::seed(args.sampling.seed);
    interrupt::install();
    let backend = device::start(args.context.device.as_ref())?;
    target::look(&backend, args.cache.vram_target_mib);
    let start = Instant::now();
    let Some(model) = setup::load(&backend, &path, &args.context)? else {
        let outcome = Outcome::interrupted_after(start.elapsed());
        return Ok(finish(
            args,
            &outcome,
            &RunJson::new(&outcome, seed),
            [].iter(),
        ));
    };
    let prompt = setup::tokens(&model, &text, args)?;
    let mut context = setup::context(&model, prompt.len(), args)?;
    let mut sampler = sampling::chain(&model, &args.sampling, seed)?;
    let load = start.elapsed();

    let mut stdout = io::stdout().lock();
    let mut nowhere = io::sink();
    let generation = Generation {
        context: &mut context,
        sampler: &mut sampler,
        out: if args.json { &mut nowhere } else { &mut stdout },
        tokens_max: args.tokens,
    };
    let outcome = generation.run(&prompt, load)?;
    drop(stdout);
    let mut json = RunJson::new(&outcome, seed);
    json.model = Some(describe(&model, &path));
    json.options = Some(options(args, &context));
    let residency = args.cache.given().then(|| context.residency());
    json.residency = residency.as_ref().map(ResidencyJson::new);
    let staging = context
        .staging()
        .filter(|staging| staging.depth > 0 || staging.device_ns > 0);
    json.staging = staging.as_ref().map(StagingJson::new);
    let notes = [
        residency.map(|residency| residency.to_string()),
        staging.map(|staging| staging.to_string()),
    ];
    Ok(finish(args, &outcome, &json, notes.iter().flatten()))
}

/// Writes what comes after the text, and answers the exit code.
fn finish<'a>(
    args: &RunArgs,
    outcome: &Outcome,
    json: &RunJson<'_>,
    notes: impl Iterator<Item = &'a String>,
) -> u8 {
    if args.json {
        ui::print(&json.text());
    } else if io::stdout().is_terminal()
        && !outcome.text.is_empty()
        && !outcome.text.ends_with('\n')
    {
        // The timing line should not stick to the text on a screen.
        ui::print("");
    }
    notes.for_each(|note| ui::note(note));
    ui::note(&outcome.timings.line(outcome.stop, json.seed));
    match outcome.stop {
        StopReason::Interrupted => exit::interrupted(interrupt::signal().unwrap_or(libc::SIGINT)),
        _ => exit::OK,
    }
}

fn describe(model: &Model, path: &Path) -> ModelJson {
    ModelJson {
        path: path.display().to_string(),
        description: model.description(),
        parameters: model.n_params(),
        bytes: model.size_bytes(),
        trained_context_tokens: model.n_ctx_train(),
    }
}

fn options(args: &RunArgs, context: &Context<'_>) -> OptionsJson {
    OptionsJson {
        tokens: args.tokens,
        chat: args.chat,
        temp: args.sampling.temp,
        top_k: args.sampling.top_k,
        top_p: args.sampling.top_p,
        min_p: args.sampling.min_p,
        repeat_penalty: args.sampling.repeat_penalty,
        ctx: context.n_ctx(),
        batch: context.n_batch(),
        ubatch: context.n_ubatch(),
        threads: args.context.threads.unwrap_or_else(threads::fitting),
        gpu_layers: args.context.gpu_layers,
        cache_type_k: args.context.cache_type_k.clone(),
        cache_type_v: args.context.cache_type_v.clone(),
        flash_attn: context.uses_flash_attention(),
    }
}
