//! A spilled KV cache against its resident twin, on tiny random models: the bits must be the same.

#[path = "../common/mod.rs"]
mod common;

mod contract; // windows, budgets, types, threads, streams and model kinds
mod placement; // where each row lies, and what the report says
mod refusals; // what cannot be met is refused with a reason
mod restored; // states that come back into holes, other windows and other sequences
mod saved; // states travel between windows
mod sequences; // several sequences over window and tail
mod twins; // making a spilled context and its twin
mod walk; // random sequences of edits, compared after every step
