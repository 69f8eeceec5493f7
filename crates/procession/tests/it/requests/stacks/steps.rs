//! Stacks of steps that do not end, which a signal interrupts.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use procession::SpawnOptions;
use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::observe::StackSource;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::SeqCst;

use super::stack_by;
use crate::home::{block, others_may_run, thread};
use crate::scene::threaded;

/// A state machine with a step that does not end.
struct Stalls(Arc<[AtomicBool; 2]>);

impl Process for Stalls {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
        computes(&self.0[0], &self.0[1]);
        Ok(Status::Done(()))
    }
}

#[test]
fn a_step_of_a_state_machine_that_does_not_end_has_a_stack() {
    let scheduler = threaded(1);
    let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let stalls =
        SpawnOptions::new().on(&scheduler).try_start_machine(Stalls(Arc::clone(&flags)), "", ());
    let stalls = stalls.expect("it takes any input");
    while !flags[0].load(SeqCst) {
        thread::yield_now();
    }
    let taken = stack_by(&threaded(1), &scheduler, stalls.pid()).expect("it stays in one step");
    assert_eq!(taken.source(), StackSource::Step, "{taken}");
    assert!(taken.to_string().contains("computes"), "{taken}");
    flags[1].store(true, SeqCst);
    assert_eq!(stalls.join(), Ok(()));
}

#[inline(never)]
fn computes(begun: &AtomicBool, ends: &AtomicBool) -> u64 {
    let mut number = 0_u64;
    begun.store(true, SeqCst);
    while !ends.load(SeqCst) {
        number = std::hint::black_box(number.wrapping_mul(7) + 1);
        others_may_run();
    }
    number
}

#[inline(never)]
fn blocks(begun: &AtomicBool, ends: &AtomicBool) -> u64 {
    begun.store(true, SeqCst);
    while !ends.load(SeqCst) {
        block(Duration::from_millis(200));
    }
    1
}

#[test]
fn a_step_that_does_not_end_shows_what_it_does() {
    type Step = fn(&AtomicBool, &AtomicBool) -> u64;
    for (step, name) in [(computes as Step, "computes"), (blocks, "blocks")] {
        let scheduler = threaded(1);
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let shared = Arc::clone(&flags);
        let stalls = scheduler.spawn(async move { step(&shared[0], &shared[1]) });
        while !flags[0].load(SeqCst) {
            thread::yield_now();
        }
        let taken = stack_by(&threaded(1), &scheduler, stalls.pid());
        let taken = taken.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(taken.source(), StackSource::Step, "{taken}");
        let text = taken.to_string();
        assert!(text.contains(name), "{taken}");
        assert!(text.contains("a_step_that_does_not_end"), "the future that calls it\n{taken}");
        assert!(!text.contains("scheduler/run.rs"), "{taken}");
        flags[1].store(true, SeqCst);
        assert!(stalls.join().is_ok(), "the signal has not disturbed it");
    }
}
