//! Look at `step`: a state machine gets the events that have happened, and returns what it waits
//! for. It never waits itself.
//!
//! `Sum` yields one `SQUARE` command for each number. The handler of the command must not block its
//! worker, so it passes each command to a plain thread, which completes them later and in any
//! order. The tag tells the machine which command is complete.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields,
};
use procession::mailbox::Event;
use procession::{Scheduler, SpawnOptions};

const SQUARE: CommandId = CommandId::FIRST_FREE;

#[derive(Debug, Default)]
struct Sum {
    numbers: Vec<u64>,
    outstanding: usize,
    sum: u64,
}

impl Process for Sum {
    type Input = procession::machine::Value;
    type Message = ();
    type Output = u64;

    fn init(&mut self, method: &str, input: Self::Input) -> Result<(), InitError> {
        match (method, input.downcast::<Vec<u64>>()) {
            ("sum of squares", Ok(numbers)) => self.numbers = *numbers,
            ("sum of squares", Err(_)) => {
                return Err(InitError::Refused("the input must be a Vec<u64>".into()));
            }
            _ => return Err(InitError::unknown_method(method)),
        }
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u64>, Box<dyn Error + Send + Sync>> {
        for number in self.numbers.drain(..) {
            yields.command(SQUARE, number, number);
            self.outstanding += 1;
        }
        for event in events {
            match event {
                Event::Completion { tag, result } => {
                    let square = result?.downcast::<u64>().map_err(|_| "a square is a u64")?;
                    println!("{tag} * {tag} = {square}");
                    self.outstanding -= 1;
                    self.sum += *square;
                }
                Event::Cancel => return Err("cancelled".into()),
                _ => {}
            }
        }
        Ok(if self.outstanding == 0 {
            Status::Done(self.sum)
        } else {
            Status::Wait(WaitingFor::Completions)
        })
    }
}

/// Runs on a plain thread: takes four numbers, and squares the last one first.
fn square_four(jobs: &mpsc::Receiver<(u64, Completion)>) {
    let mut taken: Vec<_> = jobs.iter().take(4).collect();
    while let Some((number, completion)) = taken.pop() {
        completion.complete(Ok(Box::new(number * number)));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (to_thread, jobs) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || square_four(&jobs));
        let square = move |input: Value, completion: Completion| {
            // An input of another type drops the completion, and so does a thread that has ended.
            // The machine then gets an error.
            if let Ok(number) = input.downcast::<u64>() {
                drop(to_thread.send((*number, completion)));
            }
        };
        let scheduler = Scheduler::builder().worker_threads(2).handler(SQUARE, square).build()?;

        let sum = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(Sum::default(), "sum of squares", Box::new(vec![1_u64, 2, 3, 4]))?
            .join()?;
        println!("together {sum}");
        assert_eq!(sum, 30);

        let refused = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(Sum::default(), "product", Box::new(()))
            .expect_err("it only sums");
        println!("{refused}");
        assert!(
            matches!(refused.init_error(), Some(InitError::UnknownMethod(method)) if &**method == "product")
        );
        Ok(())
    })
}
