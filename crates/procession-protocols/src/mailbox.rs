//! Bounded mailboxes, and the answer to a call.

pub mod answer;
pub mod bounded;
