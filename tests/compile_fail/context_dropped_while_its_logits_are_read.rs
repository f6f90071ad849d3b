use rolling_kv::Context;

fn misuse(context: Context<'_>) -> f32 {
    let logits = context.last_logits().unwrap();
    drop(context);
    logits[0]
}

fn main() {}
