//! What can be seen of a running scheduler.

pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
