use rolling_kv::{Context, StateBlob};

fn misuse(mut context: Context<'_>, state: StateBlob) -> f32 {
    let embeddings = context.embeddings(0).unwrap();
    context.restore_state(&state).unwrap();
    embeddings[0]
}

fn main() {}
