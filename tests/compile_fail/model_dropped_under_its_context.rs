use rolling_kv::{ContextParams, Model};

fn misuse(model: Model) {
    let mut context = model.context(&ContextParams::new(256)).unwrap();
    drop(model);
    context.memory().clear().unwrap();
}

fn main() {}
