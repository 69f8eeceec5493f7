//! Observation of a running scheduler: looks, snapshots and tracing.

#[cfg(any(feature = "observe", feature = "metrics"))]
pub(crate) mod census;
#[cfg(feature = "metrics")]
pub(crate) mod facade;
pub(crate) mod look;
#[cfg(any(feature = "observe", feature = "metrics"))]
pub(crate) mod metrics;
#[cfg(any(feature = "observe", feature = "metrics"))]
pub(crate) mod pool_figures;
pub(crate) mod snapshot;
#[cfg(feature = "sim")]
mod subject;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
