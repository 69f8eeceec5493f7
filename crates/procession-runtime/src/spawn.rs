//! Starts processes and awaits their results.

pub(crate) mod join_handle;
mod known;
mod local;
mod methods;
pub(crate) mod options;
pub(crate) mod process_local;
pub(crate) mod reservation;
