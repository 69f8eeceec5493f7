//! The sleep of the watchdog.

pub mod park;
