//! What a pool decides: which job runs next, on which worker, and who waits.

pub mod state;
