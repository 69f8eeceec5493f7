use crate::sync::channel;
use crate::{Scheduler, SpawnOptions, coroutine};

/// Goal: a new coroutine takes no free stack while another one waits. Method: the test has the only
/// stack, and is between `Return` and `Look` when the new coroutine comes.
#[test]
fn a_new_coroutine_does_not_overtake_one_that_waits() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().max_stacks(1);
    // SAFETY: the coroutines do not wait.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let builder = unsafe { builder.enable_coroutines() };
    let scheduler = builder.build().expect("it starts no thread");
    let supply = &scheduler.shared().coroutines;
    supply.count_migrating();
    let stack = supply.slab().take(supply.stack_bytes).expect("none is taken");
    let (begun, begins) = channel::unbounded();
    let begin = |number| {
        let begun = begun.clone();
        let child = SpawnOptions::new().on(&scheduler).try_start_coroutine(
            move |_: coroutine::Context<()>| begun.try_send(number).expect("it is unbounded"),
        );
        scheduler.run_until_idle();
        child.expect("they are enabled")
    };
    let first = begin(1);
    assert!(begins.is_empty(), "there is no stack");
    drop(stack);
    let second = begin(2);
    assert_eq!([begins.try_recv(), begins.try_recv()], [Ok(1), Ok(2)]);
    assert_eq!([first.join(), second.join()], [Ok(()), Ok(())]);
}
