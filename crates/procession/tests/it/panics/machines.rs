//! Panics of state machines, handlers and completions.

use crate::home::mpsc;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields,
};
use procession::{Exit, Scheduler, SpawnOptions};
use procession_sync::Mutex;

use super::{BOMB, Bomb, HOUR, panicked, survives};
use crate::scene::{assert_conserved, panic_quietly, soon};

/// The place at which a machine panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Init,
    Step,
    StepWithEvents,
    Close,
    Drop,
    CloseAndDrop,
    ErrorText,
    Nowhere,
}

struct Fragile(Where, u32);

impl Process for Fragile {
    type Input = ();
    type Message = Bomb;
    type Output = u32;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        if self.0 == Where::Init {
            self.0 = Where::Nowhere;
            panic_quietly("in init");
        }
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<Bomb>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
        /// An error that cannot be displayed.
        #[derive(Debug)]
        struct Shy;
        impl fmt::Display for Shy {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic_quietly("in an error's text")
            }
        }
        impl Error for Shy {}

        match self.0 {
            Where::Step => panic_quietly("in a step"),
            Where::StepWithEvents if events.len() > 0 => {
                yields.command(CommandId::new(300), 1, BOMB);
                panic_quietly("in a step")
            }
            Where::StepWithEvents => Ok(Status::Wait(WaitingFor::Messages)),
            Where::ErrorText => Err(Box::new(Shy)),
            _ if events.len() > 0 => {
                // Three events, none of which is looked at.
                assert!(events.len() == 3);
                yields.command(CommandId::new(300), 1, BOMB);
                yields.command(CommandId::new(300), 2, BOMB);
                Ok(Status::Done(self.1))
            }
            _ => Ok(Status::Wait(WaitingFor::Messages)),
        }
    }

    fn close(&mut self) {
        if matches!(self.0, Where::Close | Where::CloseAndDrop) {
            panic_quietly("in close");
        }
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if matches!(self.0, Where::Drop | Where::CloseAndDrop) {
            panic_quietly("in a machine's drop");
        }
    }
}

#[test]
fn a_machine_panics() {
    let cases = [
        (Where::Step, "in a step"),
        (Where::StepWithEvents, "in a step"),
        (Where::Drop, "in a machine's drop"),
        (Where::CloseAndDrop, "in a machine's drop"),
        (Where::ErrorText, "in an error's text"),
        // In these cases the result that the machine has computed stands.
        (Where::Close, ""),
        (Where::Nowhere, ""),
    ];
    survives(cases.len() as u64 - 2, |scheduler| {
        let machine = |place| {
            SpawnOptions::new()
                .on(scheduler)
                .try_start_machine(Fragile(place, 7), "", ())
                .expect("it accepts everything")
        };
        for (place, text) in cases {
            let child = machine(place);
            scheduler.run_until_idle();
            if !matches!(place, Where::Step | Where::ErrorText) {
                // All at once, so that one step receives all of them.
                let messages: Vec<_> = [BOMB, BOMB, BOMB].into();
                let address = child.address().clone();
                let sends = async move {
                    messages.into_iter().all(|message| address.send(message).is_ok())
                };
                assert_eq!(
                    procession::SpawnOptions::new().on(scheduler).affinity(0).spawn(sends).join(),
                    Ok(true)
                );
            }
            let expected = if text.is_empty() { Ok(7) } else { panicked(text) };
            assert_eq!(child.join(), expected, "{place:?}");
        }
        // Where it is killed, that exit stands.
        for place in [Where::Close, Where::Drop, Where::CloseAndDrop] {
            let child = machine(place);
            scheduler.run_until_idle();
            procession::process::kill(child.pid());
            assert_eq!(child.join(), Err(Exit::Killed), "{place:?}");
        }
        let refused = SpawnOptions::new()
            .on(scheduler)
            .try_start_machine(Fragile(Where::Init, 7), "", ())
            .expect_err("it panics");
        assert_eq!(refused.to_string(), "cannot start a process: its init panicked: in init");
        assert!(
            matches!(refused.init_error(), Some(InitError::Panicked(text)) if **text == *"in init")
        );
    });
}

/// Yields commands with inputs that panic when they are dropped, and counts the completions.
struct Yielder(Vec<CommandId>, usize);

impl Process for Yielder {
    type Input = ();
    type Message = ();
    type Output = usize;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<usize>, Box<dyn Error + Send + Sync>> {
        self.1 += events.count();
        for command in self.0.drain(..) {
            yields.command(command, 1, BOMB);
        }
        Ok(if self.1 == 3 { Status::Done(self.1) } else { Status::Wait(WaitingFor::Completions) })
    }
}

#[test]
fn handlers_and_what_they_are_given_panic() {
    for clock in [true, false] {
        let builder = Scheduler::builder()
            .worker_threads(1)
            .handler(CommandId::new(300), |input: Value, _: Completion| {
                std::mem::forget(input);
                panic_quietly("in a handler")
            })
            .handler(CommandId::new(301), |input: Value, completion: Completion| {
                completion.complete(Ok(input))
            });
        let builder = if clock { builder.test_clock() } else { builder };
        let scheduler = builder.build().expect("each command has one handler");
        // A command without a handler, one with a handler that panics, and one that returns the
        // bomb.
        for command in [CommandId::new(299), CommandId::new(300), CommandId::new(301)] {
            let machine = Yielder(vec![command; 3], 0);
            let child = SpawnOptions::new()
                .on(&scheduler)
                .try_start_machine(machine, "", ())
                .expect("it accepts everything");
            // Either the machine lives, or the drop of its own values is its own fault.
            let result = child.join();
            assert!(
                result == Ok(3) || result == panicked("a bomb was dropped"),
                "{command}: {result:?}"
            );
        }
        assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
        scheduler.block_on(procession::sleep(Duration::from_nanos(1)));
        assert_conserved(&scheduler);
    }
}

#[test]
fn the_result_of_a_late_completion_panics() {
    let (hold, held) = mpsc::channel();
    let hold = Mutex::new(hold);
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .handler(CommandId::new(300), move |input: Value, completion: Completion| {
            std::mem::forget(input);
            hold.lock().send(completion).expect("the test waits");
        })
        .build()
        .expect("each command has one handler");
    let machine = Yielder(vec![CommandId::new(300)], 0);
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "", ())
        .expect("it accepts everything");
    // Until this process ends, the clock stands still.
    let address = child.address().clone();
    scheduler.spawn(async { procession::yield_now().await }).join().expect("it ends");
    procession::process::kill(child.pid());
    assert_eq!(child.join(), Err(Exit::Killed));
    let late: Completion = soon(&held);
    // The clock goes on, whether the thread sees the panic or not.
    drop(catch_unwind(AssertUnwindSafe(|| late.complete(Ok(Box::new(BOMB))))));
    assert!(!address.is_alive());
    scheduler.block_on(procession::sleep(HOUR));
    scheduler.run_until_idle();
}
