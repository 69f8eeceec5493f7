//! Commands with types, and commands of async processes.

use crate::home::mpsc;
use std::time::Duration;

use procession::machine::{
    BlockingWork, Command, CommandError, CommandId, Completion, Done, Events, InitError, Process,
    SendParcel, SpawnProcess, Status, Value, WaitingFor, Yields, command, perform,
};
use procession::mailbox::Event;
use procession::mailbox::relay::Parcel;
use procession::process::current_pid;
use procession::{Context, Pid, Scheduler, SpawnOptions, spawn, timeout};

use super::HOUR;
use crate::scene::{assert_conserved, driven, panic_quietly, soon, threaded};

/// A command that halves even numbers.
struct Half(u32);

impl Command for Half {
    const ID: CommandId = CommandId::FIRST_FREE;
    type Output = u32;
}

/// Another command of the same number.
struct Other;

impl Command for Other {
    const ID: CommandId = CommandId::FIRST_FREE;
    type Output = String;
}

fn halve(half: Half, done: Done<Half>) {
    match half.0 {
        n if n % 2 == 0 => done.send(Ok(n / 2)),
        13 => panic_quietly("at thirteen"),
        n => done.send(Err(CommandError::Failed(format!("{n} is odd").into()))),
    }
}

fn halving() -> Scheduler {
    Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .command(halve)
        .build()
        .expect("it starts no thread")
}

#[test]
fn a_command_has_types() {
    let scheduler = halving();
    let outcomes = scheduler.spawn(async {
        let odd = perform(Half(3)).await;
        let wrong_input = command(Half::ID, "text").await.map(drop);
        let wrong_output = Other::output(command(Half::ID, Half(2)).await);
        (perform(Half(8)).await, odd, perform(Half(13)).await, wrong_input, wrong_output)
    });
    let (even, odd, panicked, wrong_input, wrong_output) = outcomes.join().expect("it ends");
    assert_eq!(even, Ok(4));
    assert_eq!(odd, Err(CommandError::Failed("3 is odd".into())));
    assert_eq!(panicked, Err(CommandError::Dropped));
    assert!(
        matches!(wrong_input, Err(CommandError::WrongInput(wanted)) if wanted.ends_with("Half"))
    );
    assert!(
        matches!(wrong_output, Err(CommandError::WrongOutput(wanted)) if wanted.ends_with("String"))
    );
}

#[test]
fn an_async_process_yields_commands_as_well() {
    let scheduler = halving();
    let start = scheduler.now();
    let outcomes = scheduler.spawn(async {
        let unknown = command(CommandId::new(999), ()).await.map(drop);
        let slept = command(CommandId::SLEEP, HOUR).await.map(|value| value.is::<()>());
        let no_sleep = command(CommandId::SLEEP, "an hour").await.map(drop);
        (unknown, slept, no_sleep)
    });
    let expected = (
        Err(CommandError::Unknown(CommandId::new(999))),
        Ok(true),
        Err(CommandError::WrongInput("Duration")),
    );
    assert_eq!(outcomes.join(), Ok(expected));
    assert_eq!(scheduler.now() - start, HOUR);
}

#[test]
fn a_process_that_waits_for_a_command_is_woken_from_any_thread() {
    let (given, gives) = mpsc::channel::<Completion>();
    let builder = Scheduler::builder().worker_threads(1).handler(
        CommandId::FIRST_FREE,
        move |_: Value, completion| {
            given.send(completion).expect("the test listens");
        },
    );
    let scheduler = builder.build().expect("the system has threads");
    let waits = scheduler.spawn(async {
        command(CommandId::FIRST_FREE, ()).await.map(|value| value.downcast::<u8>())
    });
    let completion = soon(&gives);
    crate::home::thread::scope(|scope| {
        scope.spawn(move || completion.complete(Ok(Box::new(7_u8)))).join()
    })
    .expect("it does not panic");
    assert_eq!(*waits.join().expect("it ends").expect("it completes").expect("it is a number"), 7);
    // If the wait is given up, the completion goes nowhere. If the completion is dropped, the wait
    // ends with an error.
    let gives_up = scheduler.spawn(async {
        timeout(Duration::from_micros(1), command(CommandId::FIRST_FREE, ())).await.is_err()
    });
    assert_eq!(gives_up.join(), Ok(true));
    soon(&gives).complete(Ok(Box::new(())));
    let dropped = scheduler.spawn(async { command(CommandId::FIRST_FREE, ()).await.map(drop) });
    drop(soon(&gives));
    assert_eq!(dropped.join(), Ok(Err(CommandError::Dropped)));
}

/// Yields many commands at once, and ends when all are complete.
struct Batch {
    left: u64,
    sum: u64,
}

const BATCH: u64 = 1000;

impl Process for Batch {
    type Input = ();
    type Message = ();
    type Output = u64;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u64>, Box<dyn std::error::Error + Send + Sync>> {
        if self.left == 0 {
            self.left = BATCH;
            (0..BATCH).for_each(|tag| yields.perform(tag, Half(tag as u32 * 2)));
        }
        for event in events {
            if let Event::Completion { tag, result } = event {
                assert_eq!(u64::from(Half::output(result)?), tag, "each completion has its tag");
                self.sum += tag;
                self.left -= 1;
            }
        }
        Ok(if self.left == 0 {
            Status::Done(self.sum)
        } else {
            Status::Wait(WaitingFor::Completions)
        })
    }
}

#[test]
fn many_commands_are_out_at_once_and_complete_in_any_order() {
    // The commands complete inline, or on a thread in reverse order.
    for inline in [true, false] {
        let (later, laters) = mpsc::channel::<(Half, Done<Half>)>();
        let builder =
            Scheduler::builder().worker_threads(2).command(move |half: Half, done: Done<Half>| {
                if inline {
                    halve(half, done)
                } else {
                    later.send((half, done)).expect("the test listens")
                }
            });
        let scheduler = builder.build().expect("the system has threads");
        let batch = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(Batch { left: 0, sum: 0 }, "", ())
            .expect("it takes any");
        if !inline {
            let mut all: Vec<_> = (0..BATCH).map(|_| soon(&laters)).collect();
            while let Some((half, done)) = all.pop() {
                halve(half, done);
            }
        }
        assert_eq!(batch.join(), Ok(BATCH * (BATCH - 1) / 2));
    }
}

#[test]
fn sending_and_starting_are_commands() {
    let scheduler = driven();
    let receiver = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let pid = receiver.pid();
    let outcome = scheduler.spawn(async move {
        let wrong = perform(SendParcel::new(Parcel::new(pid, "text"))).await.expect("it is served");
        let back = wrong.expect_err("it receives numbers");
        assert!(back.parcel.message.is::<&str>());
        assert!(
            perform(SendParcel::new(Parcel::new(pid, 7_u32))).await.expect("it is served").is_ok()
        );
        let started: Option<Pid> =
            perform(SpawnProcess::new(|| Some(spawn(async {}).pid()))).await.expect("it is served");
        started.is_some() && started != current_pid()
    });
    assert_eq!(outcome.join(), Ok(true));
    assert_eq!(receiver.join(), Ok(Some(7)));
    scheduler.run_until_idle();
    assert_conserved(&scheduler);
}

#[test]
fn blocking_work_is_a_command() {
    let scheduler = threaded(1);
    let (release, released) = mpsc::channel();
    let waits =
        scheduler.spawn(async move { perform(BlockingWork::new(move || released.recv())).await });
    // The worker is free meanwhile.
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
    release.send(7).expect("it waits");
    assert_eq!(waits.join(), Ok(Ok(Ok(7))));
    let panics = scheduler
        .spawn(async { perform(BlockingWork::<()>::new(|| panic_quietly("in the cellar"))).await });
    let failed = CommandError::Failed("the process panicked: in the cellar".into());
    assert_eq!(panics.join(), Ok(Err(failed)));
    let wrong = scheduler.spawn(async { command(CommandId::BLOCKING, "text").await.map(drop) });
    assert_eq!(wrong.join(), Ok(Err(CommandError::WrongInput("BlockingWork"))));
}

#[test]
fn the_numbers_of_the_runtime_are_not_given_away() {
    struct Mine;
    impl Command for Mine {
        const ID: CommandId = CommandId::SEND;
        type Output = ();
    }
    let error = Scheduler::builder()
        .command(|_: Mine, done| done.send(Ok(())))
        .build()
        .expect_err("it is the runtime's");
    assert!(error.to_string().contains("command 2 has a handler"), "{error}");
}

#[test]
fn a_thread_has_commands_served_as_well() {
    let scheduler = threaded(1);
    let served = scheduler.block_on(async { command(CommandId::new(999), ()).await.map(drop) });
    assert_eq!(served, Err(CommandError::Unknown(CommandId::new(999))));
}

/// A result of a handler that panics in its `Drop`.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic_quietly("dropped");
    }
}

#[test]
fn a_completion_for_nobody_harms_nobody() {
    let (given, gives) = mpsc::channel::<Completion>();
    let builder = Scheduler::builder().worker_threads(1).test_clock().handler(
        CommandId::FIRST_FREE,
        move |_: Value, completion| {
            given.send(completion).expect("the test listens");
        },
    );
    let scheduler = builder.build().expect("it starts no thread");
    let caller = scheduler.spawn(async { command(CommandId::FIRST_FREE, ()).await.map(drop) });
    let completion = scheduler.block_on(async move {
        loop {
            match gives.try_recv() {
                Ok(completion) => return completion,
                Err(_) => procession::yield_now().await,
            }
        }
    });
    procession::process::kill(caller.pid());
    assert!(caller.join().is_err());
    let late = std::panic::AssertUnwindSafe(|| completion.complete(Ok(Box::new(PanicsInDrop))));
    assert!(
        std::panic::catch_unwind(late).is_ok(),
        "what nobody wants is dropped, and its panic ends there"
    );
    // The clock moves only when no completion is outstanding.
    assert_eq!(scheduler.spawn(procession::sleep(HOUR)).join(), Ok(()));
}
