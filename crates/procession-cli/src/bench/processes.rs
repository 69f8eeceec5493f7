//! The workloads of starting, ending and yielding.

use std::array;
use std::error::Error;

use procession::command::{CommandId, Completion, Value};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::{Event, JoinHandle};

use super::latch::Latch;
use super::meter::now;
use super::workload::{
    Failed, Outcome, SKYNET_CHILDREN, SKYNET_LEAVES, SPAWN_COUNT, STEP_COUNT, Scale, YIELD_COUNT,
    YIELD_PROCESSES, check, each,
};

pub(super) async fn spawn(scale: Scale) -> Outcome {
    static ENDED: Latch = Latch::new();
    let count = scale.of(SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        drop(procession::spawn(async { ENDED.count_down() }));
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

pub(super) async fn skynet(scale: Scale) -> Outcome {
    let leaves = scale.of(SKYNET_LEAVES);
    let start = now();
    let sum = node(0, leaves).await?;
    let outcome = vec![each(start, leaves)];
    check("the sum of the leaves' numbers", leaves * (leaves - 1) / 2, sum)?;
    Ok(outcome)
}

/// Starts a process that returns the sum of the numbers of the leaves below it.
fn node(first: u64, leaves: u64) -> JoinHandle<u64> {
    if leaves == 1 {
        return procession::spawn(async move { first });
    }
    procession::spawn(async move {
        let below = leaves / SKYNET_CHILDREN as u64;
        let children: [_; SKYNET_CHILDREN] =
            array::from_fn(|child| node(first + child as u64 * below, below));
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("a child ends with its sum");
        }
        sum
    })
}

pub(super) async fn yields(scale: Scale) -> Outcome {
    let processes = scale.of(YIELD_PROCESSES);
    let count = scale.of(YIELD_COUNT);
    let start = now();
    let spawn = |_| {
        procession::spawn(async move {
            let mut given_way = 0;
            while given_way < count {
                procession::yield_now().await;
                given_way += 1;
            }
            given_way
        })
    };
    let handles: Vec<_> = (0..processes).map(spawn).collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await?;
    }
    let outcome = vec![each(start, processes * count)];
    check("the yields", processes * count, sum)?;
    Ok(outcome)
}

pub(super) async fn step(scale: Scale) -> Outcome {
    one_by_one(scale, OneStep).await
}

pub(super) async fn step_yield(scale: Scale) -> Outcome {
    one_by_one(scale, OneCommand).await
}

async fn one_by_one<P>(scale: Scale, process: impl Fn(u64) -> P) -> Outcome
where
    P: Process<Input = (), Output = u64>,
{
    let count = scale.of(STEP_COUNT);
    let start = now();
    let mut sum = 0;
    for number in 0..count {
        let child = procession::machine::spawn_machine(process(number), "run", ())
            .map_err(Failed::error)?;
        sum += child.await?;
    }
    let outcome = vec![each(start, count)];
    check("the sum of the results", count * (count - 1) / 2, sum)?;
    Ok(outcome)
}

type StepResult = Result<Status<u64>, Box<dyn Error + Send + Sync>>;

/// A state machine that ends in its first step, with its number.
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

/// A handler that completes a command immediately, with its input.
pub(super) fn echo(input: Value, completion: Completion) {
    completion.complete(Ok(input));
}

/// A state machine that yields its number as a command, and ends with the result.
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
