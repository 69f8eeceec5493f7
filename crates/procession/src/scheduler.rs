//! The scheduler: its workers, which of them run, and what they share.

pub(crate) mod block_on;
#[expect(unsafe_code, reason = "the running process is pinned by its worker")]
pub(crate) mod current;
pub(crate) mod driver;
pub(crate) mod handle;
pub(crate) mod idle;
pub(crate) mod lifo_slot;
pub(crate) mod pace;
pub(crate) mod seat_id;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod stats;
pub(crate) mod wait_cycle;
#[expect(unsafe_code, reason = "a worker runs bodies, which the state protocol hands to it")]
pub(crate) mod worker;
