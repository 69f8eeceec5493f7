//! Tests of coroutines and their stacks through the public interface.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use procession_coroutine::{
    Coroutine, Expiry, Guards, Resumed, Stack, StackCache, Stacks, Suspender, UNWINDINGS,
    UnwindError, Unwinding,
};

fn stacks() -> Stacks {
    Stacks::new().expect("the defaults work everywhere")
}

/// Creates a coroutine, like `Coroutine::new`.
#[track_caller]
fn made<I, Y, R, F>(stack: Stack, function: F) -> Coroutine<I, Y, R>
where
    F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
{
    // SAFETY: nothing here keeps a thread-local, or a reference to its value, across a suspension;
    // all frames are Rust's.
    unsafe { Coroutine::new(stack, function) }
}

fn coroutine<I, Y, R>(
    function: impl FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
) -> Coroutine<I, Y, R> {
    made(stacks().take(64 << 10).expect("a stack is available"), function)
}

/// Records its drop.
struct Noted(Rc<Cell<u32>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn values_go_in_and_out() {
    let mut echo = coroutine(|suspender, mut text: String| {
        while text != "end" {
            text = suspender.suspend(format!("<{text}>"));
        }
        text.len()
    });
    assert!(!echo.is_started());
    for text in ["a", "bc", ""] {
        assert_eq!(echo.resume(text.to_owned()), Resumed::Suspended(format!("<{text}>")));
    }
    assert!(echo.is_started() && !echo.is_done());
    assert_eq!(echo.resume("end".to_owned()), Resumed::Returned(3));
    assert!(echo.is_done());
}

#[test]
fn a_panic_continues_in_the_caller_of_resume() {
    let dropped = Rc::new(Cell::new(0));
    let local = Noted(Rc::clone(&dropped));
    let mut fails = coroutine(move |suspender: &Suspender<'_, (), ()>, ()| {
        let _local = local;
        suspender.suspend(());
        resume_unwind(Box::new("the payload"));
    });
    assert_eq!(fails.resume(()), Resumed::Suspended(()));
    let payload =
        catch_unwind(AssertUnwindSafe(|| fails.resume(()))).expect_err("the coroutine panics");
    assert_eq!(*payload.downcast::<&str>().expect("a text"), "the payload");
    assert_eq!(dropped.get(), 1, "its stack was unwound");
    assert!(fails.is_done());
    assert!(fails.into_stack().is_ok(), "the stack is free");
}

#[test]
fn resuming_an_ended_coroutine_panics_and_harms_nothing() {
    let mut ends = coroutine(|_: &Suspender<'_, (), ()>, ()| 1);
    assert_eq!(ends.resume(()), Resumed::Returned(1));
    let panic =
        catch_unwind(AssertUnwindSafe(|| ends.resume(()))).expect_err("the coroutine panics");
    assert_eq!(
        *panic.downcast::<&str>().expect("a text"),
        "a coroutine that has ended cannot be resumed"
    );
}

#[test]
fn dropping_a_suspended_coroutine_unwinds_it() {
    let dropped = Rc::new(Cell::new(0));
    let noted = Rc::clone(&dropped);
    let mut waits = coroutine(move |suspender: &Suspender<'_, (), ()>, ()| {
        let _outer = Noted(Rc::clone(&noted));
        let payload = catch_unwind(AssertUnwindSafe(|| {
            let _inner = Noted(Rc::clone(&noted));
            suspender.suspend(());
        }));
        let payload = payload.expect_err("it is unwound");
        assert!(payload.is::<Unwinding>());
        resume_unwind(payload);
    });
    assert_eq!(waits.resume(()), Resumed::Suspended(()));
    assert_eq!(dropped.get(), 0);
    drop(waits);
    assert_eq!(dropped.get(), 2);
}

#[test]
fn dropping_a_coroutine_before_its_first_resume_drops_its_captures() {
    let dropped = Rc::new(Cell::new(0));
    let captured = Noted(Rc::clone(&dropped));
    drop(coroutine(move |_: &Suspender<'_, (), ()>, ()| drop(captured)));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn a_capture_that_panics_in_its_drop_is_dropped_once() {
    struct Fails(Rc<Cell<u32>>);
    impl Drop for Fails {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            resume_unwind(Box::new("drop"));
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let captured = Fails(Rc::clone(&dropped));
    drop(coroutine(move |_: &Suspender<'_, (), ()>, ()| std::mem::forget(captured)));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn swallowing_the_unwinding_is_tolerated_for_a_while() {
    let mut stubborn = coroutine(|suspender: &Suspender<'_, (), u32>, ()| {
        for round in 0..5 {
            assert!(catch_unwind(AssertUnwindSafe(|| suspender.suspend(round))).is_err());
        }
        "at last"
    });
    assert_eq!(stubborn.resume(()), Resumed::Suspended(0));
    stubborn.unwind().expect("five are fewer than the limit");
    assert!(stubborn.is_done());
}

#[test]
fn a_panic_while_unwinding_is_returned() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                resume_unwind(Box::new("another"));
            }
        }
    }
    let mut fails = coroutine(|suspender: &Suspender<'_, (), ()>, ()| {
        if catch_unwind(AssertUnwindSafe(|| suspender.suspend(()))).is_err() {
            resume_unwind(Box::new("instead"));
        }
        drop(Fails);
    });
    assert_eq!(fails.resume(()), Resumed::Suspended(()));
    let Err(UnwindError::Panicked(payload)) = fails.unwind() else {
        panic!("the coroutine must have panicked")
    };
    assert_eq!(*payload.downcast::<&str>().expect("a text"), "instead");
    fails.unwind().expect("it has ended");
}

#[test]
fn a_coroutine_that_cannot_be_unwound_keeps_its_stack() {
    let stacks = stacks();
    // On a separate thread, because it never ends.
    let (stats, on_thread) = (stacks.clone(), stacks.clone());
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = procession_sync::thread::Builder::new();
    #[expect(clippy::disallowed_methods, reason = "this crate has no world")]
    let _thread = thread
        .spawn(move || {
            let mut stuck =
                made(on_thread.take(1 << 14).expect("a stack is available"), |suspender, ()| {
                    let mut caught = 0;
                    loop {
                        if catch_unwind(AssertUnwindSafe(|| suspender.suspend(caught))).is_err() {
                            caught += 1;
                        }
                    }
                });
            assert_eq!(stuck.resume(()), Resumed::Suspended(0));
            assert!(matches!(stuck.unwind(), Err(UnwindError::Stuck)));
            let Resumed::<u32, ()>::Suspended(caught) = stuck.resume(()) else {
                panic!("it never ends")
            };
            assert_eq!(caught, UNWINDINGS);
            drop(stuck);
            done.send(()).expect("the test waits");
        })
        .expect("the system has threads");
    is_done.recv().expect("the thread is done");
    assert!(is_done.recv().is_err());
    let stats = stats.stats();
    assert_eq!((stats.made, stats.out), (1, 1), "its stack is never used again");
}

#[test]
fn a_coroutine_is_not_suspended_while_it_panics() {
    struct Suspends(*const ());
    impl Drop for Suspends {
        fn drop(&mut self) {
            // SAFETY: it is lower on the same stack.
            let suspender = unsafe { &*self.0.cast::<Suspender<'_, (), ()>>() };
            assert!(!suspender.may_suspend());
        }
    }
    let mut fails = coroutine(|suspender: &Suspender<'_, (), ()>, ()| {
        assert!(suspender.may_suspend());
        let _suspends = Suspends(std::ptr::from_ref(suspender).cast());
        resume_unwind(Box::new(()));
    });
    assert!(catch_unwind(AssertUnwindSafe(|| fails.resume(()))).is_err());
}

#[test]
fn coroutines_nest_and_interleave() {
    let trace = Rc::new(RefCell::new(Vec::new()));
    let mut all: Vec<_> = (0..10_u32)
        .map(|number| {
            let trace = Rc::clone(&trace);
            coroutine(move |suspender: &Suspender<'_, (), ()>, ()| {
                let own = Rc::clone(&trace);
                let mut inner = coroutine(move |suspender: &Suspender<'_, (), u32>, ()| {
                    for round in 0..3 {
                        suspender.suspend(number * 10 + round);
                    }
                });
                while let Resumed::Suspended(value) = inner.resume(()) {
                    own.borrow_mut().push(value);
                    suspender.suspend(());
                }
            })
        })
        .collect();
    for _ in 0..4 {
        for coroutine in &mut all {
            let _ = coroutine.resume(());
        }
    }
    assert!(all.iter().all(Coroutine::is_done));
    let expected: Vec<_> =
        (0..3).flat_map(|round| (0..10).map(move |number| number * 10 + round)).collect();
    assert_eq!(*trace.borrow(), expected);
}

/// The largest closure that is written to the stack itself, and the sizes around it.
#[test]
fn closures_of_every_size_near_the_largest_fit() {
    fn fits<T: Copy + PartialEq + std::fmt::Debug + 'static>(captured: T) {
        let stacks = stacks();
        let stack = stacks.take(64 << 10).expect("a stack is available");
        let mut coroutine = made::<(), (), T, _>(stack, move |_, ()| captured);
        assert_eq!(coroutine.resume(()), Resumed::Returned(captured), "{} bytes", size_of::<T>());
        // If it is never entered, it is dropped in place.
        drop(made::<(), (), T, _>(
            stacks.take(64 << 10).expect("a stack is available"),
            move |_, ()| captured,
        ));
    }
    fits([7_u8; 1008]);
    fits([7_u8; 1015]);
    fits([7_u8; 1016]);
    fits([7_u8; 1022]);
    fits([7_u8; 1023]);
    fits([7_u8; 1024]);
    fits([7_u8; 1025]);
    fits([7_u64; 126]);
    fits([7_u64; 127]);
    fits([7_u64; 128]);
    fits([7_u64; 129]);
}

#[test]
fn large_closures_and_aligned_values_fit() {
    #[repr(align(64))]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Aligned([u8; 64]);
    let large = [7_u8; 200 << 10];
    let stack = stacks().take(1 << 14).expect("a stack is available");
    let mut sums = made(stack, move |suspender: &Suspender<'_, Aligned, Aligned>, first| {
        let second = suspender.suspend(first);
        large.iter().map(|&byte| u32::from(byte)).sum::<u32>() + u32::from(second.0[0])
    });
    assert_eq!(sums.resume(Aligned([1; 64])), Resumed::Suspended(Aligned([1; 64])));
    assert_eq!(sums.resume(Aligned([2; 64])), Resumed::Returned(((7 * 200) << 10) + 2));
}

#[test]
fn the_stack_that_came_back_last_is_taken_first() {
    for guards in [Guards::PageTable, Guards::Protected] {
        let stacks =
            Stacks::builder().guards(guards).build().expect("both kinds of guards are available");
        let first = stacks.take(64 << 10).expect("a stack is available");
        let second = stacks.take(64 << 10).expect("a stack is available");
        let address = format!("{first:?}");
        assert_ne!(address, format!("{second:?}"));
        drop(second);
        drop(first);
        assert_eq!(address, format!("{:?}", stacks.take(64 << 10).expect("a stack is available")));
        let stats = stacks.stats();
        assert_eq!((stats.made, stats.free, stats.reused, stats.out_max), (2, 2, 1, 2));
    }
}

#[test]
fn a_cache_gives_stacks_without_the_slab() {
    let stacks = stacks();
    let mut cache = StackCache::new(&stacks, 64);
    for _ in 0..1000 {
        let mut coroutine = made(
            cache.take(1 << 16).expect("a stack is available"),
            |_: &Suspender<'_, (), ()>, ()| (),
        );
        assert_eq!(coroutine.resume(()), Resumed::Returned(()));
        assert!(!cache.put(coroutine.into_stack().expect("it has ended")), "it has room");
    }
    assert_eq!((stacks.stats().made, stacks.stats().reused), (1, 999));
    let larger = cache.take(1 << 20).expect("a stack is available");
    assert!(larger.capacity() >= 1 << 20, "sizes are kept apart");
    assert!(!cache.put(larger), "it has room");
    assert!(cache.take(1 << 16).expect("a stack is available").capacity() < 1 << 20);
    let many: Vec<_> =
        (0..100).map(|_| cache.take(1 << 16).expect("a stack is available")).collect();
    assert_eq!(many.into_iter().filter_map(|stack| cache.put(stack).then_some(())).count(), 2);
    assert!(stacks.stats().free >= 30, "a cache is bounded");
    cache.clear();
    assert_eq!(stacks.stats().out, 0);
}

#[test]
fn a_cache_keeps_no_more_stacks_than_it_may() {
    for most in 0..5 {
        let stacks = stacks();
        let mut cache = StackCache::new(&stacks, most);
        let many: Vec<_> =
            (0..20).map(|_| cache.take(1 << 16).expect("a stack is available")).collect();
        for stack in many {
            cache.put(stack);
        }
        let out = stacks.stats().out;
        assert!(out <= most && (out > 0) == (most > 0), "{out} of {most}");
    }
}

#[test]
fn at_the_limit_a_free_stack_of_another_size_gives_way() {
    for guards in [Guards::PageTable, Guards::Protected] {
        let stacks = Stacks::builder().limit(2).guards(guards).build().expect("it is in range");
        for bytes in [1 << 14, 1 << 20, 1 << 17, 1 << 20, 1 << 14] {
            let kept = stacks.take(bytes).expect("both are free");
            let mut fills = made(
                stacks.take(bytes).expect("the other one is free"),
                move |_: &Suspender<'_, (), ()>, ()| {
                    std::hint::black_box(&mut [1_u8; 1 << 13]);
                },
            );
            assert_eq!(fills.resume(()), Resumed::Returned(()), "its memory is in order");
            let error = stacks.take(1 << 14).expect_err("both are in use");
            assert!(error.is_limit());
            assert_eq!((stacks.stats().made, stacks.stats().out), (2, 2));
            drop(kept);
        }
    }
}

/// Goal: a stack that was in use does not expire because another one was free and gave way.
#[test]
fn a_stack_that_gives_way_was_needed() {
    let stacks = Stacks::builder().limit(2).build().expect("it is in range");
    let used = stacks.take(1 << 14).expect("none is taken");
    drop(stacks.take(1 << 14).expect("one is taken"));
    assert_eq!(expire(&stacks, 1), Expiry::Later, "the first call begins a period");
    drop(stacks.take(1 << 20).expect("the free one gives way"));
    assert_eq!(stacks.stats().released, 1);
    drop(used);
    assert_eq!(expire(&stacks, 1), Expiry::Later, "each was in use in this period");
    assert_eq!(stacks.stats().released, 1);
}

/// Ends a period.
fn expire(stacks: &Stacks, most: usize) -> Expiry {
    stacks.end_period();
    stacks.release_expired(most)
}

#[test]
fn a_stack_without_memory_gives_way_without_a_system_call() {
    let stacks = Stacks::builder().limit(1).build().expect("it is in range");
    drop(stacks.take(1 << 14).expect("none is taken"));
    assert_eq!(expire(&stacks, 1), Expiry::Later, "the first call begins a period");
    assert_eq!(expire(&stacks, 1), Expiry::Done, "its memory goes back");
    assert!(stacks.take(1 << 20).is_ok(), "it gives way");
    assert_eq!(stacks.stats().released, 1);
}

#[test]
fn a_limit_is_an_error_that_names_it() {
    let stacks = Stacks::builder().limit(2).build().expect("the limit is in range");
    let two = [stacks.take(1 << 14), stacks.take(1 << 14)];
    let error = stacks.take(1 << 14).expect_err("there are two");
    assert_eq!(error.to_string(), "no stack of 16384 bytes: the limit of 2 stacks is reached");
    assert!(error.is_limit());
    drop(two);
    assert!(stacks.take(1 << 14).is_ok());
    let error = stacks.take(usize::MAX).expect_err("nothing is that large");
    assert!(
        error.to_string().starts_with("no stack of 18446744073709551615 bytes: the largest has "),
        "{error}"
    );
    assert!(!error.is_limit());
    assert_eq!(stacks.stats().refused, 2);
}

/// Returns the resident bytes of this process, as the system reports them.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has this file");
    let pages: usize =
        statm.split(' ').nth(1).expect("the second number").parse().expect("a number");
    // SAFETY: this call has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * usize::try_from(page).expect("a page has a size")
}

#[test]
fn expired_stacks_give_their_memory_back() {
    for lazily in [false, true] {
        let builder = Stacks::builder();
        let stacks = if lazily { builder.release_lazily() } else { builder }
            .build()
            .expect("the defaults work");
        // 64 MiB, which is enough to stand out from the memory of other tests.
        let deep: Vec<_> = (0..64)
            .map(|_| {
                let stack = stacks.take(2 << 20).expect("a stack is available");
                let mut coroutine = made(stack, |_: &Suspender<'_, (), ()>, ()| {
                    std::hint::black_box(&mut [1_u8; 1 << 20]);
                });
                assert_eq!(coroutine.resume(()), Resumed::Returned(()));
                coroutine.into_stack().expect("it has ended")
            })
            .collect();
        drop(deep);
        let before = resident_bytes();
        // All of them were in use in the period that the first call ends.
        assert_eq!((expire(&stacks, 64), stacks.stats().released), (Expiry::Later, 0));
        drop(stacks.take(2 << 20).expect("a stack is available"));
        assert_eq!((expire(&stacks, 60), stacks.stats().released), (Expiry::More, 60));
        // One was needed.
        assert_eq!((stacks.release_expired(64), stacks.stats().released), (Expiry::Later, 63));
        assert_eq!((expire(&stacks, 64), stacks.stats().released), (Expiry::Done, 64));
        if !lazily {
            assert!(before.saturating_sub(resident_bytes()) > 32 << 20, "most of 64 MiB went back");
        }
        let stack = stacks.take(2 << 20).expect("a stack is available");
        let mut again = made(stack, |_: &Suspender<'_, (), ()>, ()| 5);
        assert_eq!(
            again.resume(()),
            Resumed::Returned(5),
            "and its guard and its memory are in order"
        );
    }
}

#[test]
fn many_stacks_are_one_mapping_where_guards_are_in_page_tables() {
    let stacks = stacks();
    if stacks.stats().guards != Guards::PageTable {
        return;
    }
    let mappings =
        || std::fs::read_to_string("/proc/self/maps").expect("Linux has this file").lines().count();
    let before = mappings();
    let many: Vec<_> =
        (0..10_000).map(|_| stacks.take(1 << 14).expect("a stack is available")).collect();
    assert!(mappings() < before + 200, "other tests map memory, too, but not thousands of times");
    assert_eq!(stacks.stats().made, many.len());
}

/// The budget is the program's, so a child process uses it up. If the kernel puts no guards into
/// page tables, the stacks of all other tests need protected guards, too.
#[test]
fn protected_guards_have_a_budget() {
    const TEST: &str = "protected_guards_have_a_budget";
    const CHILD: &str = "PROCESSION_BUDGET_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().expect("the path of the test is known");
        let mut child = std::process::Command::new(me);
        let output = child.args([TEST, "--exact"]).env(CHILD, "1").output();
        let output = output.expect("the child starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let stated = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let Some(mappings) = stated
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .filter(|&most| most < 200_000)
    else {
        return;
    };
    let stacks =
        Stacks::builder().guards(Guards::Protected).build().expect("it is available everywhere");
    let mut taken = Vec::new();
    let error = loop {
        match stacks.take(1 << 14) {
            Ok(stack) => taken.push(stack),
            Err(error) => break error,
        }
    };
    assert!(error.is_exhausted() && !error.is_limit(), "{error}");
    assert!(taken.len() <= mappings / 5 && taken.len() > mappings / 6, "{}", taken.len());
    let count = taken.len();
    drop(taken);
    assert!(stacks.take(1 << 14).is_ok(), "what came back is taken again");
    let other: Vec<_> = (0..count).map_while(|_| stacks.take(1 << 16).ok()).collect();
    assert_eq!(other.len(), count, "the guards of another size give way");
}

#[test]
fn stacks_are_handed_between_threads() {
    let stacks = stacks();
    let stack = stacks.take(1 << 14).expect("a stack is available");
    std::thread::scope(|scope| {
        let stacks = &stacks;
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..500 {
                    let stack = stacks.take(1 << 14).expect("a stack is available");
                    let mut adds = made(stack, |suspender: &Suspender<'_, u64, u64>, a| {
                        a + suspender.suspend(a)
                    });
                    assert_eq!(adds.resume(1), Resumed::Suspended(1));
                    assert_eq!(adds.resume(2), Resumed::Returned(3));
                }
            });
        }
    });
    drop(stack);
    assert_eq!(stacks.stats().out, 0);
    assert!(stacks.stats().made <= 5);
}
