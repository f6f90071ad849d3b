//! What a spilled cache takes of the host: tails of more than 4 GiB, memory that is not there, and memory that is given back.

#[path = "../common/mod.rs"]
mod common;

mod accounted; // what is announced is what the process takes
mod child; // tests that need a process of their own
mod failing; // allocations that fail
mod large; // a tail of more than 4 GiB
