//! Looks: the processes that a question is about, found in one pass over all processes.

pub(crate) mod detail;
pub(crate) mod figure;
pub(crate) mod groups;
mod methods;
pub(crate) mod pass;
pub(crate) mod query;
pub(crate) mod rows;
pub(crate) mod tree;
pub(crate) mod view;
