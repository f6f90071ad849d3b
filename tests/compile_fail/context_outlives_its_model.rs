use rolling_kv::{Context, ContextParams, Model};

fn misuse<'a>(model: Model) -> Context<'a> {
    model.context(&ContextParams::new(256)).unwrap()
}

fn main() {}
