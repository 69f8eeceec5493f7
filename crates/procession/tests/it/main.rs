//! The public interface, by area.
#![cfg(not(procession_loom))]

mod basics;
mod fairness;
mod machines;
mod messages;
mod panics;
mod promises;
mod scene;
mod spawn;
