//! What processes share: messages, channels, locks, the budget, pools.
#![expect(
    clippy::type_complexity,
    clippy::redundant_async_block,
    clippy::async_yields_async,
    reason = "tables of cases, and cases that are about just these types"
)]

#[macro_use]
extern crate procession_sim_attribute;

mod budget;
mod channels;
mod home;
mod messages;
mod pool;
#[allow(dead_code, reason = "each room uses some of it")]
mod scene;
mod select;
mod simulated;
mod sync;
