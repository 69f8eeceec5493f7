//! The floors of the crate. The tests of `procession trial` hold whole trials.

#[path = "../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../procession/tests/it/layers/imports.rs"]
mod imports;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &["door error figures machine", "service", "ledger load", "stage"];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}
