//! Waits that would never end, and threads that the system refuses.

use crate::home::{mpsc, thread};
use procession::{Scheduler, blocking};

use crate::scene::{TIMEOUT, soon};

/// Creates a scheduler that may have `threads` threads, which can all run at once.
fn narrow(threads: usize) -> Scheduler {
    Scheduler::builder()
        .worker_threads(threads)
        .max_threads(threads)
        .build()
        .expect("the system has threads")
}

/// A process in the first scheduler blocks on one in the next, and so on; the last one blocks on
/// one in the first. Returns `true` if all of them may. Whichever blocks last closes the circle.
fn wait_round(schedulers: Vec<Scheduler>, at: usize) -> bool {
    let Some(next) = schedulers.get(at + 1).cloned() else {
        let first = &schedulers[0];
        return first.try_block_on(first.spawn(async {})).is_ok();
    };
    let child = next.spawn(async move { wait_round(schedulers, at + 1) });
    next.try_block_on(child).is_ok_and(|all_may| all_may.expect("it does not panic"))
}

#[test]
fn schedulers_that_would_wait_for_one_another_for_ever_are_refused() {
    for length in 1..=4 {
        // With a second thread, the first scheduler can run the last process.
        for threads in [1, 2] {
            let first = narrow(threads);
            let rest = (1..length).map(|_| narrow(1));
            let schedulers: Vec<_> = [first.clone()].into_iter().chain(rest).collect();
            let round = first.spawn(async move { wait_round(schedulers, 0) });
            let all_may = round
                .join_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("{length} wait for one another"));
            assert_eq!(
                all_may.expect("it does not panic"),
                threads == 2,
                "{length} schedulers, {threads} threads"
            );
        }
    }
}

#[test]
fn a_wait_for_a_scheduler_with_a_thread_that_will_return_is_not_refused() {
    let (one, two) = (narrow(1), narrow(2));
    // One thread of the second scheduler blocks on something else, which the first scheduler waits
    // for. Its other thread waits for the first scheduler.
    let (release, held) = mpsc::channel::<()>();
    let (tells, told) = mpsc::channel();
    let slow = two.spawn({
        let tells = tells.clone();
        async move {
            blocking(|| {
                tells.send(()).expect("the test listens");
                held.recv().unwrap_or_default();
            });
        }
    });
    soon(&told);
    let waits = one.spawn({
        let two = two.clone();
        async move {
            tells.send(()).expect("the test listens");
            two.try_block_on(slow).is_ok()
        }
    });
    soon(&told);
    while one.snapshot().blocking_sections == 0 {
        thread::yield_now();
    }
    let asks = two.spawn({
        let one = one.clone();
        async move { one.try_block_on(one.spawn(async { 7 })).map_err(drop) }
    });
    while two.snapshot().blocking_sections < 2 {
        thread::yield_now();
    }
    drop(release);
    assert_eq!(asks.join().expect("it does not panic").map(|seven| seven.expect("it ends")), Ok(7));
    assert!(waits.join().expect("it does not panic"));
}

/// What the section waits for could need the scheduler.
#[test]
fn a_wait_for_the_own_scheduler_is_refused_beside_a_section() {
    let scheduler = narrow(2);
    let (release, held) = mpsc::channel::<()>();
    let (tells, told) = mpsc::channel();
    let slow = scheduler.spawn(async move {
        blocking(|| {
            tells.send(()).expect("the test listens");
            held.recv().unwrap_or_default();
        });
    });
    soon(&told);
    let asks = scheduler.spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.try_block_on(scheduler.spawn(async {})).is_err() }
    });
    assert!(asks.join().expect("it does not panic"), "no thread is left");
    drop(release);
    slow.join().expect("it does not panic");
}
