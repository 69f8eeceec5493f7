//! What others leave with a process until its end.

pub mod on_exit;
pub mod remote_links;
