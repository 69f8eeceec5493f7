//! Observation of a running scheduler: snapshots and tracing.

pub(crate) mod snapshot;
#[cfg(feature = "sim")]
mod subject;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
