//! Futures as commands of state machines.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;

use procession::machine::{
    AsyncWork, Command, CommandError, CommandId, Events, InitError, Process, Status, Successor,
    WaitingFor, Yields, command, perform,
};
use procession::mailbox::Event;
use procession::net::UnixStream;
use procession::observe::{ProcessState, WaitReason};
use procession::sync::{Semaphore, oneshot};
use procession::time::Instant;
use procession::{Child, Exit, Scheduler, SpawnOptions, sleep};

use crate::home::mpsc;
use crate::scene::seconds;
use crate::scene::{assert_conserved, driven, panic_quietly, soon_closed, threaded};

type StepResult = Result<Status<u32>, Box<dyn Error + Send + Sync>>;

/// A state machine that runs a closure for each step.
struct Steps<F>(F, Option<Successor<(), u32, u32>>);

impl<F> Process for Steps<F>
where
    F: FnMut(&mut Events<u32>, &mut Yields<'_>) -> StepResult + Send + 'static,
{
    type Input = ();
    type Message = u32;
    type Output = u32;

    fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(&mut self, events: &mut Events<u32>, yields: &mut Yields<'_>) -> StepResult {
        self.0(events, yields)
    }

    fn successor(&mut self) -> Option<Successor<(), u32, u32>> {
        self.1.take()
    }
}

fn machine<F>(scheduler: &Scheduler, steps: F) -> Child<u32, u32>
where
    F: FnMut(&mut Events<u32>, &mut Yields<'_>) -> StepResult + Send + 'static,
{
    SpawnOptions::new()
        .on(scheduler)
        .try_start_machine(Steps(steps, None), "", ())
        .expect("it accepts everything")
}

/// Returns the tags and outputs of the completions.
fn outputs<T: Send + 'static>(events: &mut Events<u32>) -> Vec<(u64, Result<T, CommandError>)> {
    let output = |event| match event {
        Event::Completion { tag, result } => Some((tag, AsyncWork::<T>::output(result))),
        _ => None,
    };
    events.filter_map(output).collect()
}

/// Reads a byte.
fn read(stream: &Arc<UnixStream>) -> AsyncWork<Option<u8>> {
    let stream = Arc::clone(stream);
    AsyncWork::new(async move {
        let mut byte = [0];
        let length = stream.read(&mut byte).await.expect("the other side lives");
        (length == 1).then_some(byte[0])
    })
}

fn write(stream: &Arc<UnixStream>, byte: u8) -> AsyncWork<()> {
    let stream = Arc::clone(stream);
    AsyncWork::new(async move { stream.write_all(&[byte]).await.expect("the other side lives") })
}

const READ: u64 = 1;
const WRITTEN: u64 = 2;

#[test]
fn a_machine_serves_a_socket_beside_its_mailbox() {
    for width in [0, 1, 2] {
        let scheduler = if width == 0 { driven() } else { threaded(width) };
        scheduler.block_on(async {
            let (near, far) = UnixStream::pair().expect("there are descriptors");
            let (near, mut sum, mut begun) = (Arc::new(near), 0, false);
            // Echoes bytes plus what messages have added, until the other side closes.
            let server = machine(&scheduler, move |events, yields| {
                if !std::mem::replace(&mut begun, true) {
                    yields.perform(READ, read(&near));
                }
                for event in events {
                    match event {
                        Event::Message(number) => sum += number,
                        Event::Completion { tag: READ, result } => {
                            let Some(byte) = AsyncWork::<Option<u8>>::output(result)? else {
                                return Ok(Status::Done(sum));
                            };
                            yields.perform(WRITTEN, write(&near, byte + sum as u8));
                            yields.perform(READ, read(&near));
                        }
                        Event::Completion { tag, result } => {
                            assert!(tag == WRITTEN && result.is_ok());
                        }
                        other => panic!("{other:?}"),
                    }
                }
                Ok(Status::Wait(WaitingFor::Either))
            });
            let (mut answer, mut added) = ([0], 0);
            for round in 1..=20 {
                far.write_all(&[round]).await.expect("the server lives");
                far.read_exact(&mut answer).await.expect("the server lives");
                assert_eq!(answer, [round + added], "width {width}");
                server.send(1).expect("the server lives");
                added += 1;
                // The message is received before the next byte, whichever comes first.
                far.write_all(&[0]).await.expect("the server lives");
                far.read_exact(&mut answer).await.expect("the server lives");
                assert!([added - 1, added].contains(&answer[0]));
                while answer[0] < added {
                    far.write_all(&[0]).await.expect("the server lives");
                    far.read_exact(&mut answer).await.expect("the server lives");
                }
            }
            drop(far);
            assert_eq!(server.await, Ok(20));
        });
    }
}

#[test]
fn a_machine_shows_what_its_future_waits_for_and_its_end_drops_it() {
    for end in 0..3 {
        let scheduler = driven();
        let (alive, freed) = mpsc::channel::<()>();
        let (near, _far) = scheduler.block_on(async { UnixStream::pair() }).expect("descriptors");
        let near = Arc::new(near);
        let read_from = Arc::clone(&near);
        let reads = machine(&scheduler, move |events, yields| {
            if events.any(|event| matches!(event, Event::Cancel)) {
                return Ok(Status::Done(7));
            }
            let (read, alive) = (read(&read_from), alive.clone());
            yields.perform(READ, read);
            yields.perform(
                READ,
                AsyncWork::new(async move {
                    let _alive = alive;
                    pending::<()>().await;
                }),
            );
            Ok(Status::Wait(WaitingFor::Completions))
        });
        let waiting = scheduler.run_until_idle();
        let reasons: Vec<_> = waiting[0].waiting.reasons().collect();
        assert!(reasons.contains(&WaitReason::Readable), "{reasons:?}");
        assert!(reasons.contains(&WaitReason::Completion), "{reasons:?}");
        let expected = match end {
            0 => {
                reads.cancel();
                Ok(7)
            }
            1 => {
                assert!(procession::process::kill(reads.pid()));
                Err(Exit::Killed)
            }
            _ => {
                assert!(scheduler.block_on(scheduler.shutdown(seconds(1))).is_empty());
                Ok(7)
            }
        };
        assert_eq!(reads.join(), expected);
        assert_eq!(Arc::strong_count(&near), 1, "the future is gone");
        soon_closed(&freed);
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_future_spends_the_budget_of_its_process() {
    let scheduler = driven();
    let permits = Arc::new(Semaphore::new(1));
    let works = machine(&scheduler, move |events, yields| {
        if events.len() == 0 {
            let permits = Arc::clone(&permits);
            yields.perform(
                0,
                AsyncWork::new(async move {
                    for _ in 0..1000 {
                        drop(permits.acquire(1).await);
                    }
                }),
            );
            return Ok(Status::Wait(WaitingFor::Completions));
        }
        Ok(Status::Done(events.len() as u32))
    });
    let (pid, observer) = (works.pid(), scheduler.clone());
    let beside = scheduler.spawn(async move {
        procession::yield_now().await;
        observer.process(pid).map(|row| row.state)
    });
    let state = beside.join().expect("it does not panic");
    assert!(state.is_some_and(|state| state != ProcessState::Complete), "it goes on: {state:?}");
    assert_eq!(works.join(), Ok(1));
}

#[test]
fn a_future_that_is_ready_or_fails_completes_like_any_command() {
    let scheduler = driven();
    let mut begun = false;
    let works = machine(&scheduler, move |events, yields| {
        if !std::mem::replace(&mut begun, true) {
            yields.perform(1, AsyncWork::new(async { "ready" }));
            yields.perform(2, AsyncWork::<&str>::new(async { panic_quietly("in a future") }));
            yields.perform(
                3,
                AsyncWork::<&str>::new(async {
                    procession::process::exit(Exit::failed("by itself"))
                }),
            );
            yields.command(CommandId::ASYNC, 4, "no future");
            return Ok(Status::Wait(WaitingFor::Completions));
        }
        let failed = |text: &str| Err(CommandError::Failed(text.into()));
        let outputs = outputs::<&str>(events);
        let mut sorted: Vec<_> = outputs.into_iter().collect();
        sorted.sort_by_key(|output| output.0);
        assert_eq!(sorted[0], (1, Ok("ready")));
        assert_eq!(sorted[1], (2, failed("the process panicked: in a future")));
        assert!(matches!(sorted[2], (3, Err(CommandError::Failed(_)))), "{sorted:?}");
        assert_eq!(sorted[3], (4, Err(CommandError::WrongInput("AsyncWork"))));
        Ok(Status::Done(sorted.len() as u32))
    });
    assert_eq!(works.join(), Ok(4));
    // Any other process awaits the future itself.
    let awaits = scheduler.spawn(async {
        let wrong = command(CommandId::ASYNC, "no future").await.map(drop);
        (perform(AsyncWork::new(async { 5 })).await, wrong)
    });
    let wrong = Err(CommandError::WrongInput("AsyncWork"));
    assert_eq!(awaits.join(), Ok((Ok(5), wrong)));
    assert_conserved(&scheduler);
}

#[test]
fn a_wait_for_messages_keeps_the_output_of_a_future() {
    let scheduler = driven();
    let (sends, sent) = oneshot::channel::<u32>();
    let mut work = Some(AsyncWork::new(async move { sent.await.expect("it is sent") }));
    let waits = machine(&scheduler, move |events, yields| match work.take() {
        Some(work) => {
            yields.perform(0, work);
            Ok(Status::Wait(WaitingFor::Messages))
        }
        None => {
            assert!(matches!(events.next(), Some(Event::Completion { tag: 0, result: Ok(_) })));
            assert!(matches!(events.next(), Some(Event::Message(3))));
            Ok(Status::Done(1))
        }
    });
    scheduler.run_until_idle();
    sends.send(2).expect("the future waits");
    scheduler.run_until_idle();
    assert!(waits.is_alive(), "no step came");
    waits.send(3).expect("it waits");
    assert_eq!(waits.join(), Ok(1));
}

#[test]
fn a_successor_gets_the_output_of_a_future() {
    let scheduler = driven();
    let begin = scheduler.now();
    let successor = Steps(
        move |events: &mut Events<u32>, _: &mut Yields<'_>| match outputs::<Instant>(events)[..] {
            [] => Ok(Status::Wait(WaitingFor::Completions)),
            [(9, Ok(at))] => Ok(Status::Done((at - begin).as_secs() as u32)),
            ref other => panic!("{other:?}"),
        },
        None,
    );
    let first = |_: &mut Events<u32>, yields: &mut Yields<'_>| -> StepResult {
        yields.perform(
            9,
            AsyncWork::new(async {
                sleep(seconds(5)).await;
                Instant::now()
            }),
        );
        Ok(Status::Become)
    };
    let process = SpawnOptions::new().on(&scheduler).try_start_machine(
        Steps(first, Some(Box::new(successor))),
        "",
        (),
    );
    assert_eq!(process.expect("it accepts everything").join(), Ok(5));
}
