//! The readiness of descriptors.

pub mod readiness;
