//! The public interface, by area.
#![cfg(not(procession_loom))]

mod basics;
