//! Terms in the external format.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| procession_cluster::fuzzing::term(bytes));
