//! What is seen of a scheduler: views, reports, the door. The layers of the sources are here, too.
#![expect(clippy::async_yields_async, reason = "cases that are about just these types")]

#[macro_use]
extern crate procession_sim_attribute;

#[cfg(feature = "door")]
mod door;
#[cfg(feature = "metrics")]
mod facade;
mod home;
mod layers;
mod leaks;
mod look;
mod reports;
#[allow(dead_code, reason = "each room uses some of it")]
mod scene;
#[cfg(feature = "serde")]
mod serialize;
mod simulated;
mod wait_cycles;
