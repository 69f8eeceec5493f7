use std::time::Duration;

use procession_coroutine::Expiry;
use procession_protocols::scheduler::seat_id::NEVER;

use crate::sync::channel;
use crate::time::sleep;
use crate::{Scheduler, SpawnOptions, coroutine};

/// The number of coroutines, more than the caches of two workers keep.
const COUNT: usize = 300;

fn scheduler(stacks: usize) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(2).test_clock().max_stacks(stacks);
    // SAFETY: the coroutines hold nothing while they wait.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let builder = unsafe { builder.enable_coroutines() };
    builder.build().expect("it starts no thread")
}

/// Has many coroutines use their stacks at the same time, and end.
fn burst(scheduler: &Scheduler) {
    let (gate, open) = channel::bounded::<()>(0);
    let all: Vec<_> = (0..COUNT)
        .map(|_| {
            let open = open.clone();
            let wait = move |_: coroutine::Context<()>| coroutine::wait(open.recv());
            let child = SpawnOptions::new().on(scheduler).try_start_coroutine(wait);
            child.expect("they are enabled")
        })
        .collect();
    scheduler.run_until_idle();
    drop(gate);
    all.into_iter().for_each(|child| assert_eq!(child.join(), Ok(None)));
}

#[test]
fn stacks_that_are_not_needed_give_their_memory_back() {
    let scheduler = scheduler(1 << 20);
    let slab = scheduler.shared().coroutines.slab();
    for _ in 0..2 {
        burst(&scheduler);
        assert_eq!((slab.stats().made, slab.stats().out_max), (COUNT, COUNT));
        // The timer fires three times and more, because so many stacks are more than a batch.
        scheduler.block_on(sleep(Duration::from_secs(30)));
        assert_eq!(slab.release_expired(0), Expiry::Done);
        assert!(slab.stats().released >= COUNT - 128, "each worker keeps 64 of them");
        assert_eq!(scheduler.snapshot().timers.pending, 0, "a program that is idle does not wake");
    }
}

/// Goal: a coroutine gets a stack that expired while it began to wait. Method: the test has the
/// only stack, and is between `Return` and `Look` when the stack expires.
#[test]
fn a_stack_that_expires_is_handed_to_a_coroutine_that_waits() {
    let scheduler = scheduler(1);
    let shared = scheduler.shared();
    shared.coroutines.count_migrating();
    let stack = shared.coroutines.slab().take(shared.coroutines.stack_bytes);
    let waits =
        SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| 7);
    scheduler.run_until_idle();
    drop(stack.expect("none is taken"));
    shared.expire_stacks(true);
    assert_eq!(waits.expect("they are enabled").join(), Ok(7));
}

/// Goal: a scheduler that callers drive starts no thread for the timer. Method: a timer outside of
/// all seats would need one.
#[test]
fn the_timer_is_in_the_seat_of_the_caller() {
    let scheduler = scheduler(1);
    let options = SpawnOptions::new().on(&scheduler);
    let child = options.try_start_coroutine(|_: coroutine::Context<()>| ());
    assert_eq!(child.expect("they are enabled").join(), Ok(()));
    assert_eq!(scheduler.shared().clock.outside.next(), NEVER);
}
