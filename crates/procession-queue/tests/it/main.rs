//! Goal: what goes into a queue comes out once, in the documented order, whoever takes it and however it ends. Method: a
//! battery of small tests for each structure, named alike, that number their items and tally what was taken.
//!
//! Which interleavings are allowed is for the models (`src/models.rs`); here the threads are real, and there are many.
#![cfg(not(procession_loom))]

mod deque;
mod events;
mod fifo;
mod global;
mod tally;
