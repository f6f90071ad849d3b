//! Continues a text: `cargo run --release --example continue -- model.gguf "Once upon a time"`.

use std::io::Write;
use std::process::ExitCode;

use rolling_kv::{
    AddSpecial, Backend, ContextParams, Model, ModelParams, ParseSpecial, RenderSpecial, Result,
    Sampler, Utf8Stream,
};

/// Tokens to write at most.
const TOKENS: usize = 128;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(prompt)) = (args.next(), args.next()) else {
        eprintln!("usage: continue MODEL.gguf TEXT");
        return ExitCode::FAILURE;
    };
    match continue_text(&path, &prompt) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn continue_text(path: &str, prompt: &str) -> Result<()> {
    let backend = Backend::init()?;
    let model = Model::load(&backend, path, &ModelParams::default())?;
    let mut context = model.context(&ContextParams::new(2048))?;
    let mut sampler = Sampler::builder()
        .top_k(40)
        .top_p(0.95)
        .temperature(0.8)
        .random(42)
        .build(&model)?;
    let (vocab, mut text) = (model.vocab(), Utf8Stream::new());

    context.append(
        0,
        &vocab.tokenize(prompt, AddSpecial::Auto, ParseSpecial::No)?,
    )?;
    print!("{prompt}");
    for _ in 0..TOKENS {
        let token = sampler.sample(&context.last_logits()?)?;
        if vocab.is_end(token) {
            break;
        }
        print!("{}", text.push(&vocab.piece(token, RenderSpecial::No)?));
        // A closed pipe is no reason to fail: the text was wanted no longer.
        let _ = std::io::stdout().flush();
        context.append(0, &[token])?;
    }
    println!("{}", text.finish());
    let perf = context.perf();
    eprintln!(
        "prompt {:.1} t/s, writing {:.1} t/s",
        perf.prompt_rate().unwrap_or_default(),
        perf.decode_rate().unwrap_or_default()
    );
    Ok(())
}
