//! The sleep command.

use crate::home::mpsc;
use std::error::Error;
use std::time::Duration;

use procession::machine::WaitingFor::{Completions, Either};
use procession::machine::{CommandId, Events, InitError, Process, Status, Value, Yields};
use procession::mailbox::Event;
use procession::time::Instant;
use procession::{Child, Exit, Scheduler, SpawnOptions};

use super::text;
use crate::scene::driven;

/// Yields a sleep for each input, and reports when each is over.
struct Sleeper {
    inputs: Vec<Value>,
    begin: Instant,
    over: mpsc::Sender<(u64, String, Duration)>,
}

impl Process for Sleeper {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
        for (tag, input) in self.inputs.drain(..).enumerate() {
            match input.downcast::<Duration>() {
                Ok(duration) => yields.command(CommandId::SLEEP, tag as u64, *duration),
                Err(_) => yields.command(CommandId::SLEEP, tag as u64, "no duration"),
            }
        }
        for event in events {
            match event {
                Event::Completion { tag, result } => {
                    self.over.send((tag, text(result), Instant::now() - self.begin))?;
                }
                _ => return Ok(Status::Done(())),
            }
        }
        Ok(Status::Wait(Completions))
    }
}

/// The report of a sleeper: tag, result and time.
type Slept = (u64, String, Duration);

fn sleeper(scheduler: &Scheduler, inputs: Vec<Value>) -> (Child<(), ()>, mpsc::Receiver<Slept>) {
    let (over, told) = mpsc::channel();
    let machine = Sleeper { inputs, begin: scheduler.now(), over };
    (
        SpawnOptions::new()
            .on(scheduler)
            .try_start_machine(machine, "", ())
            .expect("it accepts everything"),
        told,
    )
}

#[test]
fn the_sleep_command_completes_in_time() {
    let scheduler = driven();
    let second = Duration::from_secs(1);
    let inputs: Vec<Value> = vec![
        Box::new(second * 3),
        Box::new(second),
        Box::new(Duration::ZERO),
        Box::new("three seconds"),
        Box::new(second),
        Box::new(second * 86400 * 365),
    ];
    let (child, over) = sleeper(&scheduler, inputs);
    assert_eq!(child.join(), Err(Exit::WaitsForNothing), "after the last one");
    let mut told: Vec<_> = over.iter().collect();
    // The sleeps that are over immediately, in any order.
    told[..2].sort_by_key(|told| told.0);
    let gave = || String::from("gave ()");
    let wrong = String::from("the command's input is not of type Duration");
    let expected = [
        (2, gave(), Duration::ZERO),
        (3, wrong, Duration::ZERO),
        (1, gave(), second),
        (4, gave(), second),
        (0, gave(), second * 3),
        (5, gave(), second * 86400 * 365),
    ];
    assert_eq!(told, expected);
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn a_sleep_for_ever_ends_with_its_machine() {
    for cancel in [true, false] {
        let scheduler = driven();
        let (child, over) =
            sleeper(&scheduler, vec![Box::new(Duration::MAX), Box::new(Duration::from_secs(3600))]);
        scheduler.run_until_idle();
        assert!(scheduler.snapshot().timers.pending > 0);
        if cancel {
            child.cancel();
            assert_eq!(child.join(), Ok(()));
        } else {
            procession::process::kill(child.pid());
            assert_eq!(child.join(), Err(Exit::Killed));
        }
        assert_eq!(scheduler.snapshot().timers.pending, 0, "its timers are freed with it");
        scheduler.block_on(procession::sleep(Duration::from_secs(7200)));
        assert_eq!(over.try_iter().count(), 0);
        assert_eq!(scheduler.snapshot().processes.len(), 0, "no timer keeps its slot");
    }
}

#[test]
fn a_cancelled_sleep_does_not_complete_and_is_not_waited_for() {
    /// Sleeps, cancels the first sleep at a message, and reports what completes.
    struct Canceller(bool, mpsc::Sender<u64>);
    impl Process for Canceller {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            events: &mut Events<()>,
            yields: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
            if !std::mem::replace(&mut self.0, true) {
                for tag in [1, 2, 3] {
                    yields.command(CommandId::SLEEP, tag, Duration::from_secs(1));
                }
                assert!(yields.cancel_sleep(3) && !yields.cancel_sleep(3));
            }
            for event in events {
                match event {
                    Event::Message(()) => {
                        assert!(yields.cancel_sleep(1) && !yields.cancel_sleep(1))
                    }
                    Event::Completion { tag, .. } => {
                        assert!(!yields.cancel_sleep(tag), "it is over");
                        self.1.send(tag).expect("the test waits");
                        return Ok(Status::Wait(Completions));
                    }
                    other => return Err(format!("{other:?}").into()),
                }
            }
            Ok(Status::Wait(Either))
        }
    }
    let scheduler = driven();
    let (tell, over) = mpsc::channel();
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Canceller(false, tell), "", ())
        .expect("it accepts everything");
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().timers.pending, 2);
    child.send(()).expect("it waits");
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().timers.pending, 1);
    assert_eq!(child.join(), Err(Exit::WaitsForNothing));
    assert_eq!(over.iter().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_sleep_beyond_the_limit_of_timers_is_an_error() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_timers(2)
        .build()
        .expect("it starts no thread");
    let second = Duration::from_secs(1);
    let (child, over) =
        sleeper(&scheduler, vec![Box::new(second), Box::new(second), Box::new(second)]);
    assert_eq!(child.join(), Err(Exit::WaitsForNothing));
    let told: Vec<_> = over.iter().map(|told| (told.0, told.1)).collect();
    let refused = (2, String::from("the scheduler has reached its limit of timers"));
    assert_eq!(told, [refused, (0, String::from("gave ()")), (1, String::from("gave ()"))]);
}
