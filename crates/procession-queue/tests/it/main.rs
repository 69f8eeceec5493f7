//! Goal: every item that goes into a queue is taken once and in the documented order, whichever
//! side takes it and however the queue ends. Method: each structure has a set of small tests with
//! the same names. They number their items and tally the items taken.
//!
//! The models in `src/models.rs` check which interleavings are allowed. The tests here use many
//! real threads.
#![cfg(not(procession_loom))]

mod blocks;
mod deque;
mod events;
mod fifo;
mod global;
mod tally;
