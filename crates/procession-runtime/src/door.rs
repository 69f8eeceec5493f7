//! Looking into a running program from outside: an HTTP server that belongs to a scheduler.

mod access;
mod actions;
mod activity;
mod answers;
mod asks;
mod details;
mod entry;
mod history;
mod json;
mod labels;
mod live;
mod metrics;
pub(crate) mod open;
pub(crate) mod opened;
mod page;
pub(crate) mod part;
mod places;
mod request;
mod response;
mod routes;
mod sections;
mod serve;
pub(crate) mod settings;
mod socket;
mod traces;
mod views;

pub use crate::scheduler::error::DoorError;
pub use entry::Door;
pub use settings::DoorOptions;
