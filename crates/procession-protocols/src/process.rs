//! The state word of a process, its references, its requests and its result.

#[expect(unsafe_code, reason = "a cell that changes hands by protocol")]
pub mod join_waker;
pub mod priority;
pub mod refcount;
pub mod request_table;
#[cfg(all(test, procession_loom))]
mod slot {
    mod models;
}
pub mod state;
