//! Which coroutine gets a stack while there are fewer stacks than coroutines.

use crate::home::mpsc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use procession::coroutine::wait;
use procession::process::{Priority, kill};
use procession::sync::channel;
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions};

use super::{coroutine, enabled};
use crate::scene::{assert_conserved, soon};

/// A scheduler without threads of its own.
fn scarce(stacks: usize) -> Scheduler {
    enabled(Scheduler::builder().worker_threads(1).test_clock().max_stacks(stacks))
}

/// Has `count` coroutines on a worker use their stacks at the same time, and end.
fn crowd(scheduler: &Scheduler, count: usize, worker: u32, bytes: usize) {
    let (gate, open) = channel::bounded::<()>(0);
    let (begun, begins) = mpsc::channel();
    let all: Vec<_> = (0..count)
        .map(|_| {
            let (open, begun) = (open.clone(), begun.clone());
            let options = SpawnOptions::new().on(scheduler).affinity(worker).stack_size(bytes);
            let child = options.try_start_coroutine(move |_: procession::coroutine::Context<()>| {
                begun.send(()).expect("the test listens");
                wait(open.recv())
            });
            child.expect("coroutines are enabled")
        })
        .collect();
    (0..count).for_each(|_| soon(&begins));
    drop(gate);
    all.into_iter().for_each(|child| assert_eq!(child.join(), Ok(None)));
}

pub(super) fn steps(scheduler: &Scheduler, pid: Pid) -> u32 {
    let snapshot = scheduler.snapshot();
    snapshot.processes.iter().find(|process| process.pid == pid).map_or(0, |found| found.steps)
}

/// Goal: free stacks in the cache of a worker are found by coroutines of another worker. Method:
/// all stacks are in use on one worker, then on the other. A worker keeps one stack, or two.
#[test]
fn a_worker_keeps_no_stack_that_another_worker_needs() {
    for stacks in [32, 64] {
        let scheduler = enabled(Scheduler::builder().worker_threads(2).max_stacks(stacks));
        for worker in [0, 1, 0] {
            crowd(&scheduler, stacks, worker, 64 << 10);
        }
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_free_stack_of_another_size_gives_way() {
    for width in [1, 2] {
        let scheduler = enabled(Scheduler::builder().worker_threads(width).max_stacks(64));
        for bytes in [64 << 10, 1 << 20, 64 << 10] {
            crowd(&scheduler, 64, 0, bytes);
        }
        assert_conserved(&scheduler);
    }
}

#[test]
fn coroutines_begin_in_the_order_in_which_they_waited_and_are_woken_once() {
    const COUNT: usize = 20;
    let scheduler = scarce(1);
    let (turn, turns) = channel::bounded(1);
    let (begun, begins) = mpsc::channel();
    let children: Vec<_> = (0..COUNT)
        .map(|number| {
            let (turns, begun) = (turns.clone(), begun.clone());
            let child = coroutine(&scheduler, move |_| {
                begun.send(number).expect("the test listens");
                wait(turns.recv())
            });
            scheduler.run_until_idle();
            child
        })
        .collect();
    for number in 0..COUNT {
        assert_eq!(begins.try_recv(), Ok(number));
        let waiting = children[number + 1..].iter().map(|child| steps(&scheduler, child.pid()));
        assert!(
            waiting.into_iter().all(|steps| steps == 1),
            "each has waited since its first step"
        );
        turn.try_send(()).expect("the last turn is over");
        scheduler.run_until_idle();
    }
    children.into_iter().for_each(|child| assert_eq!(child.join(), Ok(Some(()))));
}

/// Goal: a coroutine that is killed while it waits, or after a stack was handed to it, keeps no
/// stack from the next one. Method: a process of high priority learns of the end of the coroutine
/// that had the stack, and runs before the coroutine that has it by then.
#[test]
fn the_stack_of_a_killed_waiter_goes_to_the_next() {
    let scheduler = scarce(1);
    let (gate, open) = channel::bounded::<()>(0);
    let (begun, begins) = mpsc::channel();
    let holds = coroutine(&scheduler, move |_| wait(open.recv()));
    scheduler.run_until_idle();
    let [first, second, third] = [1, 2, 3].map(|number| {
        let begun = begun.clone();
        let child = coroutine(&scheduler, move |_| begun.send(number).is_ok());
        scheduler.run_until_idle();
        child
    });
    let (watched, victim) = (holds.pid(), first.pid());
    let options = SpawnOptions::new().on(&scheduler).priority(Priority::High);
    let kills = options.start(move |mut cx: Context<()>| async move {
        let monitor = cx.monitor(watched);
        cx.down(monitor).await;
        kill(victim)
    });
    scheduler.run_until_idle();
    assert!(kill(second.pid()));
    drop(gate);
    assert_eq!(third.join(), Ok(true));
    assert_eq!(first.join(), Err(Exit::Killed));
    assert_eq!(second.join(), Err(Exit::Killed));
    assert_eq!((holds.join(), kills.join()), (Ok(None), Ok(true)));
    assert_eq!((begins.try_recv(), begins.try_recv().is_err()), (Ok(3), true));
    assert_conserved(&scheduler);
}

#[test]
fn no_coroutine_waits_for_a_stack_that_was_leaked() {
    // With a thread of its own, because that thread never ends.
    let scheduler = enabled(Scheduler::builder().worker_threads(1).max_stacks(1));
    let (begun, begins) = mpsc::channel();
    let stuck = coroutine::<()>(&scheduler, move |_| {
        begun.send(()).expect("the test listens");
        loop {
            let sleeps = || procession::coroutine::sleep(Duration::from_secs(3600));
            drop(catch_unwind(AssertUnwindSafe(sleeps)));
        }
    });
    soon(&begins);
    let waits = coroutine(&scheduler, |_| ());
    while steps(&scheduler, waits.pid()) == 0 {
        crate::home::thread::yield_now();
    }
    kill(stuck.pid());
    let none = Exit::failed("no stack of 131072 bytes: the limit of 1 stacks is reached");
    assert_eq!(stuck.join(), Err(Exit::Killed));
    assert_eq!(waits.join(), Err(none.clone()));
    assert_eq!(coroutine(&scheduler, |_| ()).join(), Err(none));
}
