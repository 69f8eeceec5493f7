//! The floors of the crate: output and the error of the command, the commands, the command line,
//! and what it starts.

#[path = "../../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../../procession/tests/it/layers/imports.rs"]
mod imports;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &[
    "certificates failure format permissions repl watch",
    "node see tools",
    "program",
    "flags",
    "run",
];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}
