//! Client libraries in C, unmodified, in coroutines and on threads.
//!
//! `c/` has a client for each of four libraries, in blocking style. The program `load` runs many of
//! them at once. The tests run small clients that stand for other libraries.

pub mod client;
pub mod plain;
