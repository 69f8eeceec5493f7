//! Coroutines of schedulers that their callers drive, when a caller's thread ends.

use crate::home::mpsc;
use crate::home::thread::ThreadId;
use std::cell::RefCell;
use std::time::Duration;

use procession::process::Outcome;
use procession::{Exit, Scheduler, SpawnOptions, spawn};

use super::{Noted, coroutine, driven, enabled, this_thread};
use crate::scene::{assert_conserved, soon};

/// One worker, which is the thread that calls, and the real clock.
fn driven_by_callers() -> Scheduler {
    enabled(Scheduler::builder().worker_threads(1).callers_drive())
}

/// Runs a function on a thread that has ended afterwards, with all its locals.
fn until_it_ends<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    // A scope does not wait for the locals of its threads, but a join does.
    crate::home::thread::scope(|scope| scope.spawn(function).join().expect("it does not panic"))
}

/// A thread that drives `scheduler` until a coroutine that runs `function` has begun on it.
fn begin_and_end<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> procession::Child<(), T> {
    until_it_ends(|| {
        let child = coroutine(scheduler, function);
        scheduler.run_until_idle();
        child
    })
}

#[test]
fn a_callers_thread_that_ends_unwinds_its_coroutines() {
    for scheduler in [driven_by_callers(), driven()] {
        let (noted, notes) = mpsc::channel();
        let first = begin_and_end(&scheduler, move |mut cx| {
            let _noted = Noted(noted);
            cx.recv()
        });
        notes.try_recv().expect("it is unwound before the thread has ended");
        // Others drive, and joins complete.
        assert_eq!(scheduler.block_on(async { spawn(async { 1 }).await }), Ok(1));
        assert_eq!(first.join(), Err(Exit::ThreadEnded));
        assert_eq!(coroutine(&scheduler, |_| 2).join(), Ok(2));
        assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(60))).is_empty());
    }
}

#[test]
fn a_thread_that_ends_wakes_a_caller_that_waits_for_its_coroutines() {
    let scheduler = driven_by_callers();
    let (tells, waits) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    crate::home::thread::scope(|scope| {
        let own = &scheduler;
        let owner = scope.spawn(move || {
            let child = coroutine(own, |mut cx| cx.recv());
            own.run_until_idle();
            begun.send(()).expect("the test listens");
            soon(&waits);
            child
        });
        soon(&begins);
        // It is polled on a thread that has no seat, and so nothing runs for it.
        let ran = scheduler.block_on(async {
            let runs = spawn(async { 1 });
            tells.send(()).expect("the owner listens");
            runs.await
        });
        assert_eq!(ran, Ok(1));
        let child = owner.join().expect("it ends");
        assert_eq!(child.join(), Err(Exit::ThreadEnded));
    });
}

/// Goal: what a coroutine's frame has lent of a thread-local is still there while its thread ends.
#[test]
fn a_thread_local_outlives_the_coroutines_that_its_thread_unwinds() {
    struct Lent(procession_sync::atomic::AtomicBool);
    impl Drop for Lent {
        fn drop(&mut self) {
            self.0.store(false, procession_sync::atomic::Ordering::SeqCst);
        }
    }
    thread_local! {
        static LENT: Lent = const { Lent(procession_sync::atomic::AtomicBool::new(true)) };
    }
    let scheduler = driven_by_callers();
    let (seen, sees) = mpsc::channel();
    let child = begin_and_end(&scheduler, move |_| {
        LENT.with(|lent| {
            struct AtEnd<'a>(&'a Lent, mpsc::Sender<bool>);
            impl Drop for AtEnd<'_> {
                fn drop(&mut self) {
                    let lives = self.0.0.load(procession_sync::atomic::Ordering::SeqCst);
                    self.1.send(lives).expect("the test listens");
                }
            }
            let _at_end = AtEnd(lent, seen);
            coroutine::sleep(Duration::from_secs(3600));
        });
    });
    assert!(soon(&sees), "it is destroyed while a frame refers to it");
    assert_eq!(child.join(), Err(Exit::ThreadEnded));
}

/// Goal: a thread that ends leaves to others what has not begun on it, also if that is bound to the
/// callers' worker, and what a coroutine's destructor starts.
#[test]
fn a_thread_that_ends_leaves_other_processes_to_the_next_caller() {
    let scheduler = driven_by_callers();
    let (tells, told) = mpsc::channel();
    let bound = SpawnOptions::new().on(&scheduler).affinity(0);
    let waits = bound.start(|mut cx: procession::Context<u32>| async move { cx.recv().await });
    let address = waits.address().clone();
    struct Starts(procession::Address<u32>, mpsc::Sender<procession::JoinHandle<ThreadId>>);
    impl Drop for Starts {
        fn drop(&mut self) {
            self.0.send(7).expect("it waits");
            self.1.send(spawn(async { this_thread() })).expect("the test listens");
        }
    }
    let own = begin_and_end(&scheduler, move |_| {
        let _starts = Starts(address, tells);
        coroutine::sleep(Duration::from_secs(3600));
    });
    let started = soon(&told);
    assert_eq!(started.join(), Ok(this_thread()), "not on the thread that ended");
    assert_eq!((waits.join(), own.join()), (Ok(Some(7)), Err(Exit::ThreadEnded)));
    assert_conserved(&scheduler);
}

/// Goal: no coroutine is left behind by a thread that has already destroyed its thread locals.
#[test]
fn a_coroutine_that_begins_while_its_thread_ends_ends_with_the_drive() {
    struct AtEnd(RefCell<Option<(Scheduler, mpsc::Sender<procession::Child<(), ()>>)>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let (scheduler, children) = self.0.take().expect("it was set");
            let child = coroutine(&scheduler, |_| coroutine::sleep(Duration::from_secs(3600)));
            scheduler.run_until_idle();
            children.send(child).expect("the test listens");
        }
    }
    thread_local! {
        static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
    }
    let scheduler = driven_by_callers();
    let (children, begun) = mpsc::channel();
    let first = until_it_ends(|| {
        // Before the runtime's own locals, and so destroyed after them.
        AT_END.with(|at_end| *at_end.0.borrow_mut() = Some((scheduler.clone(), children)));
        let child = coroutine(&scheduler, |_| coroutine::sleep(Duration::from_secs(3600)));
        scheduler.run_until_idle();
        child
    });
    assert_eq!(first.join(), Err(Exit::ThreadEnded));
    assert_eq!(soon(&begun).join(), Err(Exit::ThreadEnded));
}

/// Goal: the end of the thread also ends a scheduler without any owner.
#[test]
fn a_scheduler_whose_owner_has_gone_ends_with_its_callers_thread() {
    let scheduler = driven_by_callers();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let (noted, notes) = mpsc::channel();
    crate::home::thread::scope(|scope| {
        let own = scheduler.clone();
        let owner = scope.spawn(move || {
            let child = coroutine(&own, move |mut cx| {
                let _noted = Noted(noted);
                cx.recv()
            });
            own.run_until_idle();
            drop(own);
            begun.send(child).expect("the test listens");
            soon(&goes);
        });
        let child = soon(&begins);
        drop(scheduler);
        assert!(notes.try_recv().is_err(), "it stays on its thread");
        go.send(()).expect("it waits");
        owner.join().expect("it ends");
        soon(&notes);
        assert_eq!(child.join(), Err(Exit::Killed));
    });
}

/// Goal: a coroutine that was sent to the callers' worker, and has not begun there, does not
/// reserve the seat. Method: the caller sits there in a poll, until the other worker has sent it
/// one.
#[test]
fn a_coroutine_that_has_not_begun_does_not_keep_the_callers_seat() {
    let builder = Scheduler::builder().worker_threads(2).callers_drive().watchdog(false);
    let scheduler = enabled(builder);
    let children = scheduler.block_on(async {
        let children: Vec<_> =
            (0..40).map(|_| coroutine(&scheduler, |mut cx| (cx.recv(), this_thread()).1)).collect();
        while scheduler.snapshot().workers[0].bound == 0 {
            crate::home::thread::yield_now();
        }
        children
    });
    crate::home::thread::scope(|scope| {
        scope.spawn(|| {
            for child in children {
                child.cancel();
                assert!(child.join().is_ok());
            }
        });
    });
    assert_conserved(&scheduler);
}
