//! Observation of a running scheduler: looks, snapshots and tracing.

#[cfg(feature = "look")]
pub(crate) mod ask;
#[cfg(any(feature = "door", feature = "metrics"))]
pub(crate) mod census;
#[cfg(feature = "metrics")]
pub(crate) mod facade;
#[cfg(feature = "look")]
pub(crate) mod leaks;
#[cfg(feature = "look")]
pub(crate) mod look;
#[cfg(feature = "look")]
pub(crate) mod messages;
mod methods;
#[cfg(any(feature = "door", feature = "metrics"))]
pub(crate) mod metrics;
#[cfg(any(feature = "door", feature = "metrics"))]
pub(crate) mod pool_figures;
pub(crate) mod process_info;
pub(crate) mod process_state;
#[cfg(feature = "look")]
pub(crate) mod section;
#[cfg(feature = "look")]
pub(crate) mod showing;
mod shutdown;
pub(crate) mod snapshot;
#[cfg(feature = "door")]
pub(crate) mod stack;
#[cfg(feature = "sim")]
mod subject;
#[cfg(feature = "door")]
pub(crate) mod symbols;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod unfinished;
#[cfg(all(
    feature = "door",
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod unwind;
pub(crate) mod wait_cycle;
