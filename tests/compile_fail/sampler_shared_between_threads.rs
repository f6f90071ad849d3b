use rolling_kv::{Sampler, Token};

fn misuse(sampler: &Sampler<'_>) {
    std::thread::scope(|scope| {
        scope.spawn(|| sampler.try_clone().unwrap().accept(Token(1)));
    });
}

fn main() {}
