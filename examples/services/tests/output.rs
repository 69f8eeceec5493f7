//! The examples print what they show.

use std::process::Command;

fn check(program: &str, expected: &str) {
    let run = Command::new(program).output().expect("there is room for a process");
    let printed = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program}: {errors}");
    assert_eq!(printed, expected, "{program}: {errors}");
}

#[test]
fn a_call_is_retried_until_it_succeeds_or_cannot() {
    check(
        env!("CARGO_BIN_EXE_retry"),
        "\
         no connection; the next attempt comes after 177ms\n\
         no connection; the next attempt comes after 244ms\n\
         no connection; the next attempt comes after 687ms\n\
         an answer after 1.1s\n\
         down after 8 calls\n\
         no such page after 1 call\n\
         gave up after 250ms\n\
         ",
    );
}

#[test]
fn requests_pass_at_the_rate_and_in_order() {
    check(
        env!("CARGO_BIN_EXE_rate_limit"),
        "\
         caller 0 passed after [300, 600, 900, 1200, 1500] ms\n\
         caller 1 passed after [200, 500, 800, 1100, 1400] ms\n\
         caller 2 passed after [100, 400, 700, 1000, 1300] ms\n\
         caller 3 passed after [0, 0, 0, 0, 0] ms\n\
         ",
    );
}

#[test]
fn callers_share_a_load() {
    check(
        env!("CARGO_BIN_EXE_cached_call"),
        "\
         100 readers, 4 calls\n\
         there is no page 13\n\
         there is no page 13\n\
         6 calls\n\
         ",
    );
}
