//! The wire between two nodes: what is said (`control`), and how it is cut into frames (`frame`).

pub(crate) mod control;
pub(crate) mod frame;
