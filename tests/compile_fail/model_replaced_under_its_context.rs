use rolling_kv::{ContextParams, Model};

fn misuse(mut model: Model, other: Model) {
    let mut context = model.context(&ContextParams::new(256)).unwrap();
    let _old = std::mem::replace(&mut model, other);
    context.memory().clear().unwrap();
}

fn main() {}
