//! The workloads of state machines: one step, and one command.

use std::error::Error;

use procession::SpawnOptions;
use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields,
};
use procession::mailbox::Event;

use super::processes::one_by_one;
use super::workload::{Failed, Outcome, Scale};

pub(super) async fn step(scale: Scale) -> Outcome {
    one_by_one(scale, |number| {
        SpawnOptions::new().try_start_machine(OneStep(number), "run", ()).map_err(Failed::error)
    })
    .await
}

pub(super) async fn step_yield(scale: Scale) -> Outcome {
    one_by_one(scale, |number| {
        SpawnOptions::new().try_start_machine(OneCommand(number), "run", ()).map_err(Failed::error)
    })
    .await
}

type StepResult = Result<Status<u64>, Box<dyn Error + Send + Sync>>;

/// A process that ends in its first step, with its number.
struct OneStep(u64);

impl Process for OneStep {
    type Input = ();
    type Message = ();
    type Output = u64;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(&mut self, _: &mut Events<()>, _: &mut Yields<'_>) -> StepResult {
        Ok(Status::Done(self.0))
    }
}

pub(super) const ECHO: CommandId = CommandId::FIRST_FREE;

/// Completes a command immediately, with its input.
pub(super) fn echo(input: Value, completion: Completion) {
    completion.complete(Ok(input));
}

/// A process that yields its number as a command, and ends with the result.
struct OneCommand(u64);

impl Process for OneCommand {
    type Input = ();
    type Message = ();
    type Output = u64;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(&mut self, events: &mut Events<()>, yields: &mut Yields<'_>) -> StepResult {
        match events.next() {
            Some(Event::Completion { result, .. }) => {
                let number = result?.downcast::<u64>().map_err(|_| "the result is no number")?;
                Ok(Status::Done(*number))
            }
            _ => {
                yields.command(ECHO, 0, self.0);
                Ok(Status::Wait(WaitingFor::Completions))
            }
        }
    }
}
