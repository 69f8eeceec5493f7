//! The ring of the flight recorder.

pub mod ring;
