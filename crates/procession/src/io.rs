//! Readiness of descriptors, and the reactor that asks the kernel for it.

pub(crate) mod poller;
pub(crate) mod reactor;
pub(crate) mod readiness;
pub(crate) mod starved;
