//! The sampler that the options describe, its steps in the order of llama.cpp's own programs.

use rolling_kv::{Model, Penalties, Sampler, SamplerError, Token};

use super::args::SamplingArgs;

/// At temperature 0 the likeliest token is taken, whatever the other options would drop.
pub fn chain<'model>(
    model: &'model Model,
    args: &SamplingArgs,
    seed: u32,
) -> Result<Sampler<'model>, SamplerError> {
    let vocab = model.vocab();
    let ends: Vec<(Token, f32)> = (0..vocab.len() as i32)
        .map(Token)
        .filter(|&token| args.ignore_eos && vocab.is_end(token))
        .map(|token| (token, f32::NEG_INFINITY))
        .collect();
    let punished = Sampler::builder().bias(&ends).penalties(Penalties {
        repeat: args.repeat_penalty,
        ..Penalties::default()
    });
    if args.temp == 0.0 {
        return punished.greedy().build(model);
    }
    let cut = punished
        .top_k(args.top_k)
        .top_p(args.top_p)
        .min_p(args.min_p);
    cut.temperature(args.temp).random(seed).build(model)
}
