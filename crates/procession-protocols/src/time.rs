//! Timers.

#[expect(unsafe_code, reason = "slots are shared by protocol")]
pub mod timers;
