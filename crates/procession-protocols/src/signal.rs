//! What the handler of a signal leaves for the thread that hears it.

pub mod inbox;
