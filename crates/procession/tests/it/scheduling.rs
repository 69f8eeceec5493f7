//! The scheduler: which process runs when and where, and how the scheduler ends; coroutines.
#![expect(
    clippy::type_complexity,
    clippy::borrowed_box,
    clippy::async_yields_async,
    reason = "tables of cases, and cases that are about just these types"
)]

#[macro_use]
extern crate procession_sim_attribute;

mod basics;
mod blocked;
mod bounds;
mod coroutines;
mod fairness;
mod home;
mod hostile;
mod idle;
mod order;
mod priorities;
mod recorder;
mod refusals;
mod request_ids;
mod requests;
#[allow(dead_code, reason = "each room uses some of it")]
mod scene;
mod seeded;
mod shutdown;
mod simulated;
mod stalls;
mod stress;
