use rolling_kv::Context;

fn misuse(context: &Context<'_>) {
    std::thread::scope(|scope| {
        scope.spawn(|| context.n_ctx());
    });
}

fn main() {}
