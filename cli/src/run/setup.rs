//! From options to a model, tokens, a context and a sampler.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::path::Path;

use rolling_kv::{
    AddSpecial, Answer, Backend, ChatMessage, ChatTemplate, Context, ContextParams, FlashAttention,
    KvType, LoadError, LocalLayers, Model, ModelParams, Order, ParseSpecial, RollingKv, Schedule,
    TailEngine, Token,
};

use super::args::{CacheArgs, ContextArgs, FlashAttn, OrderArg, RunArgs, ScheduleArg, WindowArg};
use super::{RunError, threads};
use crate::{interrupt, ui};

/// Cells that stay free behind a prompt, as in llama-completion.
pub const ROOM: usize = 4;

/// llama.cpp rounds the size of a context up to a multiple of this.
const CONTEXT_STEP: usize = 256;

/// Steps of the bar for loading; finer ones are not seen.
const LOAD_STEPS: u64 = 1000;

/// Loads the model with a progress bar. None: interrupted.
pub fn load(backend: &Backend, path: &Path, args: &ContextArgs) -> Result<Option<Model>, RunError> {
    let params = match args.gpu_layers {
        Some(layers) => ModelParams::default().gpu_layers(layers),
        None => ModelParams::default(),
    };
    let bar = ui::share_bar("loading", LOAD_STEPS);
    let loaded = Model::load_with_progress(backend, path, &params, |share| {
        bar.set_position((f64::from(share) * LOAD_STEPS as f64) as u64);
        if interrupt::requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.finish_and_clear();
    match loaded {
        Err(LoadError::Cancelled) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(model) if model.has_encoder() => Err(RunError::Encoder),
        Ok(model) if !model.has_decoder() => Err(RunError::NoDecoder),
        Ok(model) => Ok(Some(model)),
    }
}

/// The tokens of the prompt, laid out as a chat if asked for. Never none.
pub fn tokens(model: &Model, text: &str, args: &RunArgs) -> Result<Vec<Token>, RunError> {
    let text = if args.chat {
        &laid_out(model, text, args)?
    } else {
        text
    };
    let tokens = model
        .vocab()
        .tokenize(text, AddSpecial::Auto, ParseSpecial::Yes)?;
    if !tokens.is_empty() {
        return Ok(tokens);
    }
    let first = model.vocab().bos().filter(|_| model.vocab().adds_bos());
    first.map(|token| vec![token]).ok_or(RunError::NoTokens)
}

fn laid_out(model: &Model, question: &str, args: &RunArgs) -> Result<String, RunError> {
    let system = args.system.iter().map(ChatMessage::system);
    let messages: Vec<_> = system.chain([ChatMessage::user(question)]).collect();
    Ok(ChatTemplate::of(model)?.format(&messages, Answer::Open)?)
}

/// The context, large enough for the prompt and what is to be generated, unless the user gave a size.
pub fn context<'model>(
    model: &'model Model,
    prompt: usize,
    args: &RunArgs,
) -> Result<Context<'model>, RunError> {
    let trained = model.n_ctx_train();
    let n_ctx = args
        .context
        .ctx
        .unwrap_or_else(|| fitting_context(prompt, args.tokens, trained));
    let cells = (n_ctx as usize).next_multiple_of(CONTEXT_STEP);
    let room = cells - ROOM;
    if prompt > room {
        let chosen = args.context.ctx.is_none();
        return Err(RunError::PromptTooLong {
            tokens: prompt,
            cells,
            room,
            chosen,
        });
    }
    let options = &args.context;
    let params = ContextParams::new(n_ctx)
        .n_batch(options.batch)
        .n_ubatch(options.ubatch)
        .threads(options.threads.unwrap_or_else(threads::fitting))
        .cache_types(
            kv_type(&options.cache_type_k),
            kv_type(&options.cache_type_v),
        )
        .flash_attention(match options.flash_attn {
            FlashAttn::Auto => FlashAttention::Auto,
            FlashAttn::On => FlashAttention::On,
            FlashAttn::Off => FlashAttention::Off,
        });
    let params = match residency(&args.cache)? {
        Some(asked) => params.rolling_kv(asked),
        None => params,
    };
    Ok(model.context(&params)?)
}

/// What is asked of the cache; `None`: nothing, and it is llama.cpp's own.
fn residency(args: &CacheArgs) -> Result<Option<RollingKv>, RunError> {
    if !args.given() {
        return Ok(None);
    }
    let placed = match (args.vram_target_mib, args.window_cells) {
        (Some(mib), _) => RollingKv::vram_budget_mib(mib),
        (None, Some(WindowArg::Cells(cells))) => RollingKv::window_cells(cells),
        (None, Some(WindowArg::Auto)) => RollingKv::auto(),
        (None, None) if args.resident_layers.is_empty() => RollingKv::resident(),
        (None, None) => RollingKv::auto(),
    };
    let ordered = placed.order(match args.order {
        Some(OrderArg::Tiled) => Order::Tiled,
        Some(OrderArg::Auto) | None => Order::Auto,
    });
    let tiled = match args.tile_cells {
        Some(cells) => ordered.tile_cells(cells),
        None => ordered,
    };
    let scheduled = tiled.schedule(match args.schedule {
        Some(ScheduleArg::Op) => Schedule::Op,
        Some(ScheduleArg::Ring) | None => Schedule::Ring,
    });
    // 0 leaves the choice to the device.
    let staged = scheduled
        .ring_depth(args.ring_depth.unwrap_or(0))
        .copy_cells(args.copy_cells.unwrap_or(0))
        .tail_engine(args.tail_engine.map_or(TailEngine::Auto, Into::into))
        .host_threads(args.tail_threads.unwrap_or(0));
    let typed = args
        .tail_type_k
        .iter()
        .fold(staged, |spill, name| spill.tail_type_k(kv_type(name)));
    let typed = args
        .tail_type_v
        .iter()
        .fold(typed, |spill, name| spill.tail_type_v(kv_type(name)));
    let layers = args.resident_layers.iter().cloned();
    let placed = layers.fold(typed, RollingKv::resident_layers);
    Ok(Some(match &args.local_file {
        Some(file) => placed.local_layers(LocalLayers::from_file(file)?),
        None => placed,
    }))
}

/// What is needed, but no more than the model was trained for.
fn fitting_context(prompt: usize, generated: u32, trained: u32) -> u32 {
    let needed = (prompt + generated as usize + ROOM).next_multiple_of(CONTEXT_STEP);
    u32::try_from(needed)
        .unwrap_or(u32::MAX)
        .min(trained.max(CONTEXT_STEP as u32))
}

/// The command line allows only names of types, so that the fallback is never taken.
pub fn kv_type(name: &str) -> KvType {
    KvType::ALL
        .into_iter()
        .find(|kind| kind.to_string() == name)
        .unwrap_or_default()
}

/// The seed that the user gave, or a new one.
pub fn seed(asked: Option<u32>) -> u32 {
    // A hasher of the standard library starts from random numbers of the system. llama.cpp reads the largest number as
    // "choose one", and then nobody would know which.
    asked.unwrap_or_else(|| (RandomState::new().build_hasher().finish() as u32).min(u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::args::CACHE_TYPES;

    #[test]
    fn every_name_of_a_cache_type_is_a_type() {
        for name in CACHE_TYPES {
            assert_eq!(kv_type(name).to_string(), name);
        }
        assert_eq!(KvType::ALL.len(), CACHE_TYPES.len());
    }

    #[test]
    fn a_context_holds_prompt_and_answer_but_no_more_than_trained() {
        assert_eq!(fitting_context(5, 128, 8192), 256);
        assert_eq!(fitting_context(200, 128, 8192), 512);
        assert_eq!(fitting_context(252, 0, 8192), 256);
        assert_eq!(fitting_context(253, 0, 8192), 512);
        assert_eq!(fitting_context(8000, 1000, 8192), 8192);
        assert_eq!(fitting_context(9000, i32::MAX as u32, 8192), 8192);
        assert_eq!(fitting_context(10, 10, 0), 256);
    }

    #[test]
    fn new_seeds_differ_and_a_given_one_is_kept() {
        assert_eq!(seed(Some(7)), 7);
        assert!((0..8).any(|_| seed(None) != seed(None)));
    }
}
