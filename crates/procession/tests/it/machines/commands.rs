//! Commands of state machines: handlers and completions.

use crate::home::mpsc;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::WaitingFor::{Completions, Either, Messages};
use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, Yields,
};
use procession::mailbox::{Event, WhenFull};
use procession::process::current_pid;
use procession::time::Instant;
use procession::{Scheduler, SpawnOptions};
use procession_sync::Mutex;

use super::End::{Continue, Done, Wait};
use super::{
    Act, DROPPED, HELD, INLINE, NOTHING, PANICS, Play, Scripted, THREAD, Told, Turn, UNKNOWN,
    check, stage, turn, yields,
};
use crate::scene::{assert_conserved, driven, panic_quietly, soon};

#[test]
fn completions_come_from_the_handler_itself_or_from_any_thread() {
    for command in [INLINE, THREAD] {
        for waiting_for in [Completions, Either] {
            let turns = [
                yields(&[(command, 1), (command, 2), (command, 1)], Wait(waiting_for)),
                yields(&[(command, 3)], Wait(waiting_for)),
                turn(Done(1)),
            ];
            let first: &[&str] =
                &["completion 1 gave 1", "completion 2 gave 2", "completion 1 gave 1"];
            check(&turns, &[], &[NOTHING, first, &["completion 3 gave 3"]], Some(Ok(1)));
        }
    }
}

#[test]
fn what_a_handler_sends_to_its_process_keeps_its_place_among_completions() {
    const BEFORE: CommandId = CommandId::new(300);
    const AFTER: CommandId = CommandId::new(301);
    let send = || {
        procession::mailbox::send(current_pid().expect("the process yields"), 7_u32)
            .expect("it lives")
    };
    let expected = [
        "completion 1 gave 1",
        "completion 2 gave 2",
        "message 7",
        "message 7",
        "completion 3 gave 3",
        "completion 4 gave 4",
    ];
    for mailbox in [None, Some(10)] {
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .callers_drive()
            .handler(INLINE, |input: Value, completion: Completion| completion.complete(Ok(input)))
            .handler(BEFORE, move |input: Value, completion: Completion| {
                send();
                completion.complete(Ok(input));
            })
            .handler(AFTER, move |input: Value, completion: Completion| {
                completion.complete(Ok(input));
                send();
            })
            .build()
            .expect("each command has one handler");
        let told = Arc::new(Mutex::new(Vec::new()));
        let turns = vec![
            yields(&[(INLINE, 1), (AFTER, 2), (BEFORE, 3), (INLINE, 4)], Wait(Either)),
            turn(Done(1)),
        ];
        let machine =
            Scripted { turns: turns.into_iter(), told: Arc::clone(&told), closed: Arc::default() };
        let mut options = SpawnOptions::new().on(&scheduler);
        if let Some(capacity) = mailbox {
            options = options.mailbox(capacity, WhenFull::Reject);
        }
        let child =
            options.try_start_machine(machine, "play", Box::new(())).expect("it has this method");
        assert_eq!(child.join(), Ok(1));
        assert_eq!(told.lock()[1], expected, "with {mailbox:?}");
    }
}

#[test]
fn a_command_that_is_completed_at_once_wakes_nobody() {
    let play = Play::begin(&[
        yields(&[(INLINE, 1), (PANICS, 2), (INLINE, 3)], Wait(Messages)),
        turn(Done(1)),
    ]);
    let steps =
        |play: &Play| play.scheduler.snapshot().processes.first().map(|process| process.steps);
    assert_eq!(
        steps(&play),
        Some(1),
        "it is not dispatched to find that it waits for something else"
    );
    play.child.send(5).expect("it lives");
    play.scheduler.run_until_idle();
    let told = [
        "completion 1 gave 1",
        "completion 2 the handler dropped the completion",
        "completion 3 gave 3",
        "message 5",
    ];
    assert_eq!(play.told(), [NOTHING, &told]);
    assert_eq!(play.end(), Some(Ok(1)));
}

#[test]
fn a_handler_may_complete_an_older_command_of_its_process_first() {
    const KEPT: CommandId = CommandId::new(300);
    const BOTH: CommandId = CommandId::new(301);
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .handler(KEPT, move |input: Value, completion: Completion| {
            *keep.lock() = Some((input, completion));
        })
        .handler(BOTH, move |input: Value, completion: Completion| {
            let (older, older_completion) = kept.lock().take().expect("it was yielded");
            older_completion.complete(Ok(older));
            completion.complete(Ok(input));
            panic_quietly("after all is done");
        })
        .build()
        .expect("each command has one handler");
    let told = Arc::new(Mutex::new(Vec::new()));
    let turns = vec![
        yields(&[(KEPT, 1)], Continue),
        yields(&[(BOTH, 2)], Wait(Completions)),
        turn(Done(1)),
    ];
    let machine =
        Scripted { turns: turns.into_iter(), told: Arc::clone(&told), closed: Arc::default() };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "play", Box::new(()))
        .expect("it has this method");
    assert_eq!(child.join(), Ok(1));
    let last = ["completion 1 gave 1", "completion 2 gave 2"];
    assert_eq!(*told.lock(), [NOTHING, NOTHING, &last]);
}

#[test]
fn a_completion_that_cannot_be_given_is_an_error() {
    let dropped = "completion 1 the handler dropped the completion";
    let unknown = "completion 1 no handler is registered for command 65535";
    for (command, told) in [(DROPPED, dropped), (PANICS, dropped), (UNKNOWN, unknown)] {
        let turns = [yields(&[(command, 1)], Wait(Completions)), turn(Done(1))];
        check(&turns, &[], &[NOTHING, &[told]], Some(Ok(1)));
    }
    let turns = [yields(&[(HELD, 1)], Wait(Completions)), turn(Done(1))];
    check(&turns, &[Act::Drop(1)], &[NOTHING, &[dropped]], Some(Ok(1)));
}

#[test]
fn a_completion_for_an_ended_process_is_for_nobody() {
    // The slot is reused by a machine that waits for its own completions.
    let (scheduler, held) =
        stage(Scheduler::builder().worker_threads(1).callers_drive().max_processes(2));
    let told = Arc::new(Mutex::new(Vec::new()));
    let play = |turns: Vec<Turn>| {
        let machine =
            Scripted { turns: turns.into_iter(), told: Arc::clone(&told), closed: Arc::default() };
        SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine, "play", Box::new(()))
            .expect("there is room")
    };
    let mut late = Vec::new();
    for tag in 0..20 {
        // The completions of ended machines keep their slots, at most one at a time.
        let first = play(vec![yields(&[(HELD, tag)], Wait(Messages)), turn(Done(1))]);
        scheduler.run_until_idle();
        first.send(1).expect("it lives");
        let pid = first.pid();
        assert_eq!(first.join(), Ok(1));
        late.extend(held.try_iter());
        let second = play(vec![yields(&[(HELD, 100)], Wait(Completions)), turn(Done(2))]);
        assert_ne!(second.pid(), pid);
        scheduler.run_until_idle();
        for (_, completion) in late.drain(..) {
            completion.complete(Ok(Box::new(tag)));
        }
        scheduler.run_until_idle();
        assert!(second.is_alive(), "the late completion was not its own");
        let (_, own) = soon(&held);
        own.complete(Ok(Box::new(7_u64)));
        assert_eq!(second.join(), Ok(2));
    }
    let completions: Vec<Told> = told.lock().drain(..).filter(|told| told.len() == 1).collect();
    assert!(
        completions.iter().all(|told| told[0] == "message 1" || told[0] == "completion 100 gave 7")
    );
}

#[test]
fn a_command_has_one_handler() {
    let nothing = |_: Value, _: Completion| {};
    let error = Scheduler::builder()
        .handler(HELD, nothing)
        .handler(INLINE, nothing)
        .handler(HELD, nothing)
        .build();
    let text = error.expect_err("HELD has two").to_string();
    assert_eq!(text, "cannot build a scheduler: two handlers for command 256");
    let reserved = Scheduler::builder().handler(CommandId::SLEEP, nothing).build();
    let text = reserved.expect_err("it is the runtime's").to_string();
    assert!(text.starts_with("cannot build a scheduler: command 1 has a handler"), "{text}");
    for id in [0, 1, 255] {
        let text = CommandId::try_from(id).expect_err("it is the runtime's").to_string();
        let range = "must be from 256 to 65535";
        assert_eq!(text, format!("the number of a command is {id}, but {range}"));
    }
    assert_eq!(CommandId::try_from(256), Ok(CommandId::FIRST_FREE));
    let most = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .handler(CommandId::new(256), nothing);
    most.handler(UNKNOWN, nothing).build().expect("the last number is a number");
}

#[test]
fn the_test_clock_waits_for_completions() {
    let (scheduler, held) = stage(Scheduler::builder().worker_threads(1).test_clock());
    let turns = vec![yields(&[(HELD, 1)], Wait(Completions)), turn(Done(1))].into_iter();
    let machine = Scripted { turns, told: Arc::default(), closed: Arc::default() };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "play", Box::new(()))
        .expect("it has this method");
    let begin = scheduler.now();
    crate::home::thread::scope(|scope| {
        // Given by another thread: the clock stands still while the completion is outstanding.
        scope.spawn(move || soon(&held).1.complete(Ok(Box::new(()))));
        let timed = scheduler.block_on(async {
            let result = procession::timeout(Duration::from_secs(1), child).await;
            (result, Instant::now() - begin)
        });
        assert_eq!(timed, (Ok(Ok(1)), Duration::ZERO));
    });
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    assert_eq!(scheduler.now() - begin, Duration::from_secs(1), "and moves again");
}

#[test]
fn machines_and_completions_on_all_workers_agree() {
    const MACHINES: u64 = 300;
    /// Yields commands and counts their completions, round after round.
    struct Rounds(u32, u32);
    impl Process for Rounds {
        type Input = ();
        type Message = ();
        type Output = u32;

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            events: &mut Events<()>,
            yields: &mut Yields<'_>,
        ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
            for event in events.by_ref() {
                match event {
                    Event::Completion { .. } => self.1 += 1,
                    other => return Err(format!("{other:?}").into()),
                }
            }
            if self.1 == 3 * self.0 {
                self.0 += 1;
                if self.0 > 20 {
                    return Ok(Status::Done(self.1));
                }
                yields.command(HELD, 1, 1_u64);
                yields.command(INLINE, 2, 2_u64);
                yields.command(DROPPED, 3, 3_u64);
            }
            Ok(Status::Wait(Completions))
        }
    }
    for width in [1, 2, 4] {
        let (scheduler, held) = stage(Scheduler::builder().worker_threads(width));
        crate::home::thread::scope(|scope| {
            scope.spawn(move || {
                held.into_iter().for_each(|(tag, held)| held.complete(Ok(Box::new(tag))))
            });
            let machines: Vec<_> = (0..MACHINES)
                .map(|_| {
                    SpawnOptions::new()
                        .on(&scheduler)
                        .try_start_machine(Rounds(0, 0), "", ())
                        .expect("it accepts everything")
                })
                .collect();
            for machine in machines {
                assert_eq!(machine.join(), Ok(60));
            }
            assert_conserved(&scheduler);
            // The handler goes with the scheduler, and so does the sender that feeds the thread.
            drop(scheduler);
        });
    }
}

#[test]
fn commands_are_served_on_their_processs_worker() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let scheduler = Scheduler::builder()
        .name("served")
        .worker_threads(2)
        .handler(HELD, move |_: Value, completion: Completion| {
            let name = crate::home::thread::current().name().map(str::to_owned);
            tell.lock().send(name).expect("the test waits");
            completion.complete(Ok(Box::new(())));
        })
        .build()
        .expect("the system has threads");
    for worker in [0, 1] {
        let turns = vec![yields(&[(HELD, 1)], Wait(Completions)), turn(Done(1))].into_iter();
        let machine = Scripted { turns, told: Arc::default(), closed: Arc::default() };
        let options = procession::SpawnOptions::new().on(&scheduler).affinity(worker);
        let child =
            options.try_start_machine(machine, "play", Box::new(())).expect("it has this method");
        assert_eq!(child.join(), Ok(1));
        assert_eq!(soon(&told), Some(format!("served-{worker}")));
    }
}

/// Its first step makes two completions. The process ends with their results.
struct Serves {
    kept: mpsc::Sender<Completion>,
    told: Vec<(u64, Option<u32>)>,
    begun: bool,
}

impl Process for Serves {
    type Input = ();
    type Message = ();
    type Output = Vec<(u64, Option<u32>)>;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Self::Output>, Box<dyn Error + Send + Sync>> {
        if !std::mem::replace(&mut self.begun, true) {
            let kept = [1, 2].map(|tag| yields.completion(tag));
            // Before the other thread completes its own.
            drop(yields.completion(3));
            kept.into_iter().try_for_each(|completion| self.kept.send(completion))?;
        }
        for event in events {
            let Event::Completion { tag, result } = event else { continue };
            self.told.push((
                tag,
                result.ok().and_then(|value| value.downcast().ok()).map(|value| *value),
            ));
        }
        Ok(match self.told.len() {
            3 => Status::Done(std::mem::take(&mut self.told)),
            _ => Status::Wait(Completions),
        })
    }
}

#[test]
fn a_step_makes_completions_that_no_handler_serves() {
    let scheduler = driven();
    let (kept, completions) = mpsc::channel();
    let serves = Serves { kept, told: Vec::new(), begun: false };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(serves, "begin", ())
        .expect("it refuses nothing");
    crate::home::thread::scope(|scope| {
        scope.spawn(move || {
            let [first, second] =
                [completions.recv(), completions.recv()].map(|kept| kept.expect("it makes two"));
            second.complete(Ok(Box::new(20_u32)));
            first.complete(Ok(Box::new(10_u32)));
        });
        // It does not count as waiting for nothing, and the test clock waits for both.
        assert_eq!(child.join(), Ok(vec![(3, None), (2, Some(20)), (1, Some(10))]));
    });
}
