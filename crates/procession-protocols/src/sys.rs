//! What a signal handler hands to the thread that asked for it.

pub mod handover;
