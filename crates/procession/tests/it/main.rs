//! The public interface, by area.
#![cfg(not(procession_loom))]

mod basics;
mod fairness;
mod idle;
mod machines;
mod messages;
mod panics;
mod promises;
mod scene;
mod seeded;
mod shutdown;
mod spawn;
mod stress;
mod time;
