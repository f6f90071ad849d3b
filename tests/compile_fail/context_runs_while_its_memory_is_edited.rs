use rolling_kv::{Batch, Context};

fn misuse(mut context: Context<'_>, batch: Batch) {
    let mut memory = context.memory();
    context.decode(&batch).unwrap();
    memory.clear().unwrap();
}

fn main() {}
