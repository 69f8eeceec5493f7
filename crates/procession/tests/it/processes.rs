//! Processes: relations, supervisors, servers, machines, groups, cancellation.
#![expect(
    clippy::type_complexity,
    clippy::redundant_async_block,
    clippy::async_yields_async,
    reason = "tables of cases, and cases that are about just these types"
)]

#[macro_use]
extern crate procession_sim_attribute;

mod beam;
mod behaviour;
mod cancel;
mod contracts;
mod copies;
mod ends;
mod group;
mod here;
mod home;
mod local;
mod machines;
mod outcomes;
mod panics;
mod promises;
#[allow(dead_code, reason = "each room uses some of it")]
mod scene;
mod simulated;
mod spawn;
