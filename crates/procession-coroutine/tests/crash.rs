//! Ends of the whole program. Method: this test starts itself again as a child, which runs one of the cases below, and looks at what the child
//! wrote and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Output};

use procession_coroutine::{Coroutine, Guards, Stack, Stacks, Suspender};

const CASE: &str = "PROCESSION_CRASH_CASE";

/// Runs `test` of this file again, as a child that is told to crash.
fn child(test: &str, case: &str) -> Output {
    let me = std::env::current_exe().expect("a test knows itself");
    let mut command = Command::new(me);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, case).env("RUST_BACKTRACE", "0");
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

/// As `Coroutine::new`.
#[track_caller]
fn made<I, Y, R, F>(stack: Stack, function: F) -> Coroutine<I, Y, R>
where
    F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
{
    // SAFETY: a thread-local is lent by a coroutine that is stuck alone, whose thread is kept; all
    // frames are Rust's.
    unsafe { Coroutine::new(stack, function) }
}

fn overflowing(stacks: &Stacks) -> Coroutine<(), (), u64> {
    made(stacks.take(1 << 16).expect("a stack"), |_: &Suspender<'_, (), ()>, ()| overflow(0))
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
                let said = String::from_utf8_lossy(&output.stderr);
                let report = "a coroutine (the reader) spawned at crates/procession-coroutine/tests/crash.rs:";
                assert!(said.contains(report), "{said}");
                assert!(said.contains(" has overflowed its stack of 96 KiB; aborting"), "{said}");
                assert_eq!(output.status.signal(), ABORTED, "{said}");
            }
            return;
        }
    };
    let stacks = Stacks::builder().guards(guards).build().expect("either is there");
    let mut reader = overflowing(&stacks);
    reader.set_name("the reader");
    reader.resume(());
}

#[test]
fn an_overflow_of_a_thread_is_left_to_the_handler_before() {
    const TEST: &str = "an_overflow_of_a_thread_is_left_to_the_handler_before";
    if case().is_none() {
        let output = child(TEST, "thread");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("has overflowed its stack") && !said.contains("a coroutine"), "{said}");
        assert_eq!(output.status.signal(), ABORTED, "{said}");
        return;
    }
    let _stacks = Stacks::new().expect("the defaults hold");
    std::thread::scope(|scope| drop(scope.spawn(|| overflow(0)).join()));
}

#[test]
fn any_other_fault_ends_the_program_as_without_this_crate() {
    const TEST: &str = "any_other_fault_ends_the_program_as_without_this_crate";
    if case().is_none() {
        let output = child(TEST, "fault");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("overflowed"), "{said}");
        assert_eq!(output.status.signal(), Some(11), "{said}");
        return;
    }
    let stacks = Stacks::new().expect("the defaults hold");
    let stack = stacks.take(1 << 14).expect("a stack");
    let mut faults = made(stack, |_: &Suspender<'_, (), ()>, ()| {
        // SAFETY: none; it faults.
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
            let stack = Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack");
            let mut fails = made(stack, |_: &Suspender<'_, (), ()>, ()| {
                let _fails = Fails;
                panic!("the first");
            });
            drop(catch_unwind(AssertUnwindSafe(|| fails.resume(()))));
        }
        Some("unwinding") => {
            let stack = Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack");
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
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("the second"), "{said}");
                assert_eq!(output.status.signal(), ABORTED, "{case}: {said}");
            }
        }
    }
}

#[test]
fn dropping_a_coroutine_while_panicking_is_no_double_panic() {
    let stack = Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack");
    let payload = catch_unwind(|| {
        let mut waits = made(stack, |suspender: &Suspender<'_, (), ()>, ()| suspender.suspend(()));
        waits.resume(());
        resume_unwind(Box::new("the first"));
    });
    assert_eq!(*payload.expect_err("it panics").downcast::<&str>().expect("a text"), "the first");
}

#[test]
fn a_thread_with_a_stuck_coroutine_never_ends_but_the_program_does() {
    const TEST: &str = "a_thread_with_a_stuck_coroutine_never_ends_but_the_program_does";
    if case().is_none() {
        let output = child(TEST, "stuck");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
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
        let stack = Stacks::new().and_then(|stacks| stacks.take(1 << 16)).expect("a stack");
        let mut stuck = made(stack, |suspender: &Suspender<'_, (), ()>, ()| {
            LOCAL.with(|_| {
                loop {
                    drop(catch_unwind(AssertUnwindSafe(|| suspender.suspend(()))));
                }
            })
        });
        stuck.resume(());
        drop(stuck);
        let own = std::fs::read_link("/proc/thread-self").expect("Linux tells");
        done.send(std::path::Path::new("/proc").join(own)).expect("somebody waits");
    });
    let task = is_done.recv().expect("it comes");
    // True once the closure has ended: what is left are the thread's locals.
    while !thread.is_finished() {
        procession_sync::thread::yield_now();
    }
    for _ in 0..1000 {
        procession_sync::thread::yield_now();
    }
    assert!(std::fs::exists(task).expect("Linux tells"), "the thread is still there");
}
