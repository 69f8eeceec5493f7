//! Tests of crashes. Method: each test starts itself again as a child process, which runs one of
//! the cases below. The test then checks the child's output and exit status.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Output};

use procession_coroutine::{Coroutine, Guards, Stack, Stacks, Suspender};

const CASE: &str = "PROCESSION_CRASH_CASE";

/// Runs `test` of this file again, as a child process with the case to run.
fn child(test: &str, case: &str) -> Output {
    let me = std::env::current_exe().expect("the path of the test is known");
    let mut command = Command::new(me);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .env("RUST_BACKTRACE", "0");
    command.output().expect("the child starts")
}

fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

const ABORTED: Option<i32> = Some(6);

#[expect(unconditional_recursion, reason = "it overflows")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow(depth + 1) + frame[3]
}

/// Creates a coroutine, like `Coroutine::new`.
#[track_caller]
fn made<I, Y, R, F>(stack: Stack, function: F) -> Coroutine<I, Y, R>
where
    F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
{
    // SAFETY: only a coroutine that is stuck lends a thread-local, and its thread never ends; all
    // frames are Rust's.
    unsafe { Coroutine::new(stack, function) }
}

fn overflowing(stacks: &Stacks) -> Coroutine<(), (), u64> {
    made(stacks.take(1 << 16).expect("a stack is available"), |_: &Suspender<'_, (), ()>, ()| {
        overflow(0)
    })
}

#[test]
fn an_overflow_names_the_coroutine_and_aborts() {
    const TEST: &str = "an_overflow_names_the_coroutine_and_aborts";
    let guards = match case().as_deref() {
        Some("page table") => Guards::PageTable,
        Some("protected") => Guards::Protected,
        _ => {
            for case in ["page table", "protected"] {
                let output = child(TEST, case);
                let stderr = String::from_utf8_lossy(&output.stderr);
                let report = "a coroutine (the reader) spawned at crates/procession-coroutine/tests/crash.rs:";
                assert!(stderr.contains(report), "{stderr}");
                assert!(
                    stderr.contains(" has overflowed its stack of 96 KiB; aborting"),
                    "{stderr}"
                );
                assert_eq!(output.status.signal(), ABORTED, "{stderr}");
            }
            return;
        }
    };
    let stacks =
        Stacks::builder().guards(guards).build().expect("both kinds of guards are available");
    let mut reader = overflowing(&stacks);
    reader.set_name("the reader");
    reader.resume(());
}

#[test]
fn an_overflow_of_a_thread_is_left_to_the_handler_before() {
    const TEST: &str = "an_overflow_of_a_thread_is_left_to_the_handler_before";
    if case().is_none() {
        let output = child(TEST, "thread");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("has overflowed its stack") && !stderr.contains("a coroutine"),
            "{stderr}"
        );
        assert_eq!(output.status.signal(), ABORTED, "{stderr}");
        return;
    }
    let _stacks = Stacks::new().expect("the defaults work");
    std::thread::scope(|scope| drop(scope.spawn(|| overflow(0)).join()));
}

#[test]
fn any_other_fault_ends_the_program_as_without_this_crate() {
    const TEST: &str = "any_other_fault_ends_the_program_as_without_this_crate";
    if case().is_none() {
        let output = child(TEST, "fault");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("overflowed"), "{stderr}");
        assert_eq!(output.status.signal(), Some(11), "{stderr}");
        return;
    }
    let stacks = Stacks::new().expect("the defaults work");
    let stack = stacks.take(1 << 14).expect("a stack is available");
    let mut faults = made(stack, |_: &Suspender<'_, (), ()>, ()| {
        // SAFETY: none; this is meant to fault.
        unsafe { std::ptr::without_provenance::<u8>(std::hint::black_box(16)).read_volatile() }
    });
    faults.resume(());
}

#[test]
fn a_panic_in_a_destructor_while_panicking_aborts() {
    const TEST: &str = "a_panic_in_a_destructor_while_panicking_aborts";
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("the second");
        }
    }
    match case().as_deref() {
        Some("panicking") => {
            let stack = Stacks::new()
                .and_then(|stacks| stacks.take(1 << 16))
                .expect("a stack is available");
            let mut fails = made(stack, |_: &Suspender<'_, (), ()>, ()| {
                let _fails = Fails;
                panic!("the first");
            });
            drop(catch_unwind(AssertUnwindSafe(|| fails.resume(()))));
        }
        Some("unwinding") => {
            let stack = Stacks::new()
                .and_then(|stacks| stacks.take(1 << 16))
                .expect("a stack is available");
            let mut waits = made(stack, |suspender: &Suspender<'_, (), ()>, ()| {
                let _fails = Fails;
                suspender.suspend(());
            });
            waits.resume(());
            drop(waits);
        }
        _ => {
            for case in ["panicking", "unwinding"] {
                let output = child(TEST, case);
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(stderr.contains("the second"), "{stderr}");
                assert_eq!(output.status.signal(), ABORTED, "{case}: {stderr}");
            }
        }
    }
}

#[test]
fn dropping_a_coroutine_while_panicking_is_no_double_panic() {
    let stack =
        Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack is available");
    let payload = catch_unwind(|| {
        let mut waits = made(stack, |suspender: &Suspender<'_, (), ()>, ()| suspender.suspend(()));
        waits.resume(());
        resume_unwind(Box::new("the first"));
    });
    assert_eq!(
        *payload.expect_err("the closure panics").downcast::<&str>().expect("a text"),
        "the first"
    );
}

#[test]
fn a_thread_with_a_stuck_coroutine_never_ends_but_the_program_does() {
    const TEST: &str = "a_thread_with_a_stuck_coroutine_never_ends_but_the_program_does";
    if case().is_none() {
        let output = child(TEST, "stuck");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}");
        return;
    }
    thread_local! {
        static LOCAL: Dropped = const { Dropped };
    }
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            // The thread's locals are not destroyed while the coroutine may have lent them.
            std::process::exit(1);
        }
    }
    let (done, is_done) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "this crate has no world")]
    let thread = procession_sync::thread::spawn(move || {
        let stack =
            Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack is available");
        let mut stuck = made(stack, |suspender: &Suspender<'_, (), ()>, ()| {
            LOCAL.with(|_| {
                loop {
                    drop(catch_unwind(AssertUnwindSafe(|| suspender.suspend(()))));
                }
            })
        });
        stuck.resume(());
        drop(stuck);
        let own = std::fs::read_link("/proc/thread-self").expect("Linux has this file");
        done.send(std::path::Path::new("/proc").join(own)).expect("the test waits");
    });
    let task = is_done.recv().expect("the thread sends its task");
    // The thread is finished once its closure has ended. Only the thread's locals are left then.
    while !thread.is_finished() {
        procession_sync::thread::yield_now();
    }
    for _ in 0..1000 {
        procession_sync::thread::yield_now();
    }
    assert!(std::fs::exists(task).expect("Linux has this file"), "the thread is still there");
}
