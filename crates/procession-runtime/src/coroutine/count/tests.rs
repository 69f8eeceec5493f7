use std::fmt;
use std::panic::resume_unwind;

use crate::{Exit, Scheduler, SpawnOptions, coroutine};

/// Panics when it is written.
struct Hostile;

impl fmt::Display for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        resume_unwind(Box::new("cannot be written"))
    }
}

/// A coroutine with an output that panics ends twice: with the output, and with the panic.
#[test]
fn a_coroutine_whose_output_panics_is_uncounted_once() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: the coroutine does not wait.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let builder = unsafe { builder.enable_coroutines() };
    let scheduler = builder.build().expect("it starts no thread");
    let fails = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(|_: coroutine::Context<()>| Err::<(), _>(Hostile));
    let exit = fails.expect("they are enabled").join().err();
    assert_eq!(exit, Some(Exit::Panicked("cannot be written".into())));
    let shared = scheduler.shared();
    assert!(!shared.coroutines.has_begun_any(&shared.workforce), "it has ended");
}
