//! Observation of a running scheduler: snapshots and tracing.

pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
