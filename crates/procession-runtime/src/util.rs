//! Tools that are independent of processes.

pub(crate) mod bounded_text;
pub(crate) mod column;
#[expect(unsafe_code, reason = "access to the value is exclusive or asks for Sync")]
pub(crate) mod exclusive;
pub(crate) mod generator;
pub(crate) mod out_of_range;
pub(crate) mod parse_error;
pub(crate) mod recv_error;
pub(crate) mod sort;
