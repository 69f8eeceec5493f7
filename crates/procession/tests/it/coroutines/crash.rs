//! Ends of the whole program, in a child process that runs this test again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use procession::{SpawnOptions, coroutine};

use super::threaded;

const CASE: &str = "PROCESSION_CRASH_CASE";

fn child(test: &str) -> Output {
    let me = std::env::current_exe().expect("a test knows itself");
    let mut command = Command::new(me);
    let test = format!("coroutines::crash::{test}");
    command
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CASE, "")
        .env("RUST_BACKTRACE", "0");
    command.output().expect("the child starts")
}

fn is_child() -> bool {
    std::env::var_os(CASE).is_some()
}

const ABORTED: Option<i32> = Some(6);

#[expect(unconditional_recursion, reason = "it overflows")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow(depth + 1) + frame[3]
}

#[test]
fn an_overflow_names_the_process_and_where_it_was_spawned() {
    if !is_child() {
        let output = child("an_overflow_names_the_process_and_where_it_was_spawned");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("a coroutine (process p"), "{said}");
        assert!(
            said.contains(
                "\"the reader\") spawned at crates/procession/tests/it/coroutines/crash.rs:"
            ),
            "{said}"
        );
        assert!(said.contains("has overflowed its stack of 192 KiB; aborting"), "{said}");
        assert_eq!(output.status.signal(), ABORTED, "{said}");
        return;
    }
    let scheduler = threaded(1);
    let options = SpawnOptions::new().on(&scheduler).label("the reader");
    let reader = options.try_start_coroutine(|_: coroutine::Context<()>| {
        coroutine::yield_now();
        overflow(0)
    });
    drop(reader.expect("they are enabled").join());
}

#[test]
fn a_destructor_that_panics_while_its_coroutine_panics_aborts() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("the second");
        }
    }
    if !is_child() {
        let output = child("a_destructor_that_panics_while_its_coroutine_panics_aborts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the first") && said.contains("the second"), "{said}");
        assert_eq!(output.status.signal(), ABORTED, "{said}");
        return;
    }
    let scheduler = threaded(1);
    let fails =
        SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| {
            let _fails = Fails;
            coroutine::yield_now();
            panic!("the first");
        });
    let _: Result<(), _> = fails.expect("they are enabled").join();
}
