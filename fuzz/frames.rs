//! Frames of a connection: atoms, fragments, operations and their messages.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| procession_cluster::fuzzing::frames(bytes));
