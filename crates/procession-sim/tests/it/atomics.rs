//! Checks in which each operation of an atomic is a point (*level 2*).

mod bounded;
pub(crate) mod fences;
mod litmus;
mod races;
mod reference;
mod reproduce;
mod whole;
pub(crate) mod workloads;
