//! What a pool decides: which job runs next, on which worker, and which submitter waits.

pub mod state;
