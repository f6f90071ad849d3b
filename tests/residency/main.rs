//! A spilled KV cache against its resident twin, on tiny random models: the bits must be the same.

#[path = "../common/mod.rs"]
mod common;

mod batch_sizes; // batches, ubatches and contexts of every odd size
mod bytes; // what a context takes, and what it says that it takes
mod contract; // windows, budgets, types, streams and model kinds
mod kinds; // sliding, hybrid and shared caches
mod local; // layers that see the first and the newest tokens only
mod moved_keys; // keys that moved, beside keys made at their new positions
mod placement; // where each row lies, and what the report says
mod refusals; // what cannot be met is refused with a reason
mod restored; // states that come back into holes, other windows and other sequences
mod saved; // states travel between windows
mod sequences; // several sequences over window and tail
mod shifted; // tokens that move to other positions
mod tail_types; // a smaller type in host memory
mod twins; // making a spilled context and its twin
mod types; // cache types and flash attention
mod walk; // random sequences of edits, compared after every step
