//! The program from outside, and the floors of the crate. The tests of `procession trial` hold
//! whole trials.

#[path = "../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../procession/tests/it/layers/imports.rs"]
mod imports;

use std::process::Command;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &["door error figures machine", "service", "ledger load", "stage"];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}

#[test]
fn an_argument_is_refused() {
    let mut trial = Command::new(env!("CARGO_BIN_EXE_procession-trial"));
    let output = trial.arg("--seconds").output().expect("the program can be started");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "procession-trial: unexpected argument \"--seconds\": see procession trial --help\n"
    );
}
