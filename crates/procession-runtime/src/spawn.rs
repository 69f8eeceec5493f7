//! Starts processes and awaits their results.

mod coroutine;
mod join;
pub(crate) mod join_handle;
mod launch;
mod local;
mod machine;
mod methods;
pub(crate) mod options;
pub(crate) mod process_local;
pub(crate) mod reservation;
