//! Observation of a running scheduler: looks, snapshots and tracing.

#[cfg(feature = "observe")]
pub(crate) mod census;
pub(crate) mod look;
pub(crate) mod snapshot;
#[cfg(feature = "sim")]
mod subject;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
