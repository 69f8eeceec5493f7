//! The floors of the crate: decisions and their tape, the network, the engine, the program on it,
//! and the campaign of all runs.

#[path = "../../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../../procession/tests/it/layers/imports.rs"]
mod imports;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &[
    "faults memory seen story time turn",
    "tape",
    "marks",
    "chance shrink",
    "net",
    "engine",
    "mpsc sim sync thread",
    "program",
    "again explore hosts",
    "campaign",
    "atomics",
];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}
