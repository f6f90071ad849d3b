use rolling_kv::{Batch, Context};

fn misuse(mut context: Context<'_>, batch: Batch) {
    let logits = context.logits(0).unwrap();
    context.decode(&batch).unwrap();
    println!("{}", logits[0]);
}

fn main() {}
