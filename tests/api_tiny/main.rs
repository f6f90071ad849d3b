//! The API on tiny random models: everything that needs no file from outside. Runs under valgrind too.

#[path = "../common/mod.rs"]
mod common;

mod context; // what a context refuses, and that the model survives it
mod decode; // batches: what is refused, what is rolled back, what must be equal
mod encoders; // models with an encoder, embeddings and pooling
mod grammars; // what grammars allow, and which grammars are refused
mod limits; // allocations that fail
mod load; // model files that are missing, foreign, cut or damaged; progress and cancelling
mod locality; // where attention looks
mod outputs; // which outputs can be read, and what they are
mod panics; // callbacks that panic
mod sampling; // chains, their parameters and grammars
mod sequences; // remove, copy, keep, shift, divide
mod shifts; // positions that are moved and divided
mod smoke; // every kind of tiny model can be made and run
mod state; // saving and restoring
mod state_refusals; // states that do not belong here, and that nothing is lost by trying
mod threads; // what may cross threads
mod user_models; // models from a description and a function
mod vocab; // text to tokens and back
