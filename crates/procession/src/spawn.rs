//! How processes are started, and how their results are awaited.

pub(crate) mod error;
pub(crate) mod join_handle;
pub(crate) mod options;
