//! State machines: status and yields, events, commands and their completions, and their ends.
//!
//! Method: a machine that plays a script, one [`Turn`] for each step, and records the events of
//! each step. A test consists of a script, of what happens to the machine meanwhile, of the
//! expected events, and of the expected end.

mod awaited;
mod commands;
mod sleeps;
mod successors;

use crate::home::mpsc;
use std::error::Error;
use std::sync::Arc;

use WaitingFor::{Completions, Either, Messages};
use procession::machine::{
    CommandError, CommandId, CommandResult, Completion, Events, InitError, Process, Status, Value,
    WaitingFor, Yields,
};
use procession::mailbox::Event;
use procession::observe::ProcessState;
use procession::process::exit;
use procession::{Child, Exit, Scheduler, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::{assert_conserved, driven, panic_quietly};

use End::{Continue, Done, Fail, Panic, Wait};

/// The test gives its completions.
const HELD: CommandId = CommandId::new(256);

/// Completes immediately, with its input.
const INLINE: CommandId = CommandId::new(257);

/// Completes on a separate thread, with its input.
const THREAD: CommandId = CommandId::new(258);

/// Its handler drops the completion.
const DROPPED: CommandId = CommandId::new(259);

/// Its handler panics while it holds the completion.
const PANICS: CommandId = CommandId::new(260);

/// It has no handler.
const UNKNOWN: CommandId = CommandId::new(u16::MAX);

/// The return value of a step.
#[derive(Clone, Debug)]
enum End {
    Continue,
    Wait(WaitingFor),
    Done(u32),
    Fail(&'static str),
    Panic(&'static str),
}

/// A step: what it yields, and what it returns.
type Turn = (Vec<(CommandId, u64)>, End);

fn turn(end: End) -> Turn {
    (Vec::new(), end)
}

fn yields(commands: &[(CommandId, u64)], end: End) -> Turn {
    (commands.to_vec(), end)
}

/// The events of a step.
type Told = Vec<String>;

struct Scripted {
    turns: std::vec::IntoIter<Turn>,
    told: Arc<Mutex<Vec<Told>>>,
    closed: Arc<AtomicUsize>,
}

impl Process for Scripted {
    type Input = procession::machine::Value;
    type Message = u32;
    type Output = u32;

    fn init(&mut self, method: &str, input: Self::Input) -> Result<(), InitError> {
        match (method, input.downcast_ref::<&str>()) {
            ("play", _) => Ok(()),
            ("refuse", _) => Err(InitError::Refused("not today".into())),
            ("panic", _) => panic_quietly("stage fright"),
            ("exit", _) => exit(Exit::failed("no stage")),
            ("input", Some(&"good")) => Ok(()),
            ("input", _) => Err(InitError::Refused("bad input".into())),
            _ => Err(InitError::unknown_method(method)),
        }
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
        assert_eq!(events.size_hint(), (events.len(), Some(events.len())));
        let told = events.map(|event| match event {
            Event::Message(n) => format!("message {n}"),
            Event::Completion { tag, result } => format!("completion {tag} {}", text(result)),
            Event::Cancel => String::from("cancel"),
            other => format!("{other:?}"),
        });
        self.told.lock().push(told.collect());
        let (commands, end) = self.turns.next().expect("the script has a turn for each step");
        for (command, tag) in commands {
            yields.command(command, tag, tag);
        }
        match end {
            Continue => Ok(Status::Continue),
            Wait(waiting_for) => Ok(Status::Wait(waiting_for)),
            Done(output) => Ok(Status::Done(output)),
            Fail(text) => Err(text.into()),
            Panic(text) => panic_quietly(text),
        }
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Relaxed);
    }
}

fn text(result: CommandResult) -> String {
    match result {
        Ok(value) => match value.downcast::<u64>() {
            Ok(n) => format!("gave {n}"),
            Err(other) if other.is::<()>() => String::from("gave ()"),
            Err(_) => String::from("gave something else"),
        },
        Err(error) => error.to_string(),
    }
}

/// Creates a scheduler with a handler for each command, and the channel of the held completions.
fn stage(
    builder: procession::scheduler::Builder,
) -> (Scheduler, mpsc::Receiver<(u64, Completion)>) {
    let (hold, held) = mpsc::channel();
    let hold = Mutex::new(hold);
    let tag = |input: &Value| *input.downcast_ref::<u64>().expect("the machine sends tags");
    let scheduler = builder
        .handler(HELD, move |input: Value, completion: Completion| {
            hold.lock().send((tag(&input), completion)).expect("the test waits");
        })
        .handler(INLINE, |input: Value, completion: Completion| completion.complete(Ok(input)))
        .handler(THREAD, |input: Value, completion: Completion| {
            crate::home::thread::scope(|scope| {
                scope.spawn(|| completion.complete(Ok(input))).join().expect("no panic")
            });
        })
        .handler(DROPPED, |_: Value, completion: Completion| drop(completion))
        .handler(PANICS, |_: Value, completion: Completion| {
            let _in_hand = completion;
            panic_quietly("in the handler");
        })
        .build()
        .expect("each command has one handler");
    (scheduler, held)
}

/// The acts of the test on a machine that can do nothing by itself.
#[derive(Clone, Debug)]
enum Act {
    Send(u32),
    Complete(u64),
    Fail(u64),
    Drop(u64),
    Cancel,
    Terminate,
}

struct Play {
    scheduler: Scheduler,
    held: mpsc::Receiver<(u64, Completion)>,
    kept: Vec<(u64, Completion)>,
    child: Child<u32, u32>,
    told: Arc<Mutex<Vec<Told>>>,
    closed: Arc<AtomicUsize>,
}

impl Play {
    fn begin(turns: &[Turn]) -> Self {
        // Not the test clock: run_until_idle would wait for the held completions.
        let (scheduler, held) = stage(Scheduler::builder().worker_threads(1).callers_drive());
        let told = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicUsize::new(0));
        let machine = Scripted {
            turns: Vec::from(turns).into_iter(),
            told: Arc::clone(&told),
            closed: Arc::clone(&closed),
        };
        let child = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine, "play", Box::new(()))
            .expect("it has this method");
        scheduler.run_until_idle();
        Self { scheduler, held, kept: Vec::new(), child, told, closed }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Send(n) => self.child.send(n).expect("it lives"),
            Act::Complete(tag) => self.completion(tag).complete(Ok(Box::new(tag * 100))),
            Act::Fail(tag) => {
                self.completion(tag).complete(Err(CommandError::Failed("as told".into())))
            }
            Act::Drop(tag) => drop(self.completion(tag)),
            Act::Cancel => self.child.cancel(),
            Act::Terminate => assert!(procession::process::kill(self.child.pid())),
        }
    }

    /// Returns the held completion of the oldest command with this tag.
    fn completion(&mut self, tag: u64) -> Completion {
        self.kept.extend(self.held.try_iter());
        let place =
            self.kept.iter().position(|held| held.0 == tag).expect("the machine has yielded it");
        self.kept.remove(place).1
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().clone()
    }

    /// Returns the exit of the machine, or `None` if it lives.
    #[track_caller]
    fn end(self) -> Option<Result<u32, Exit>> {
        let Self { scheduler, held, kept, child, closed, .. } = self;
        let (_address, handle) = child.into_parts();
        let lives = !handle.is_finished();
        assert_eq!(closed.load(Relaxed), usize::from(!lives), "close is called once, at the end");
        assert_conserved(&scheduler);
        if lives {
            return None;
        }
        let result = handle.join();
        // Completions after the end have no effect.
        for (tag, completion) in held.try_iter().chain(kept) {
            completion.complete(Ok(Box::new(tag)));
        }
        scheduler.run_until_idle();
        assert_eq!(closed.load(Relaxed), 1, "close is called once");
        assert_conserved(&scheduler);
        assert_eq!(
            scheduler.snapshot().panicked,
            u64::from(matches!(result, Err(Exit::Panicked(_))))
        );
        Some(result)
    }
}

#[track_caller]
fn check(turns: &[Turn], acts: &[Act], told: &[&[&str]], end: Option<Result<u32, Exit>>) {
    let mut play = Play::begin(turns);
    for act in acts {
        play.act(act);
        play.scheduler.run_until_idle();
    }
    assert_eq!(play.told(), told, "told by {acts:?}");
    assert_eq!(play.end(), end, "ended by {acts:?}");
}

/// Like `check`, but everything happens at once, before the machine can run a step.
#[track_caller]
fn check_at_once(turns: &[Turn], acts: &[Act], told: &[&[&str]], end: Option<Result<u32, Exit>>) {
    let mut play = Play::begin(turns);
    acts.iter().for_each(|act| play.act(act));
    play.scheduler.run_until_idle();
    assert_eq!(play.told(), told, "told by {acts:?}");
    assert_eq!(play.end(), end, "ended by {acts:?}");
}

const NOTHING: &[&str] = &[];

#[test]
fn continue_steps_again_at_once() {
    check(
        &[turn(Continue), turn(Continue), turn(Done(1))],
        &[],
        &[NOTHING, NOTHING, NOTHING],
        Some(Ok(1)),
    );
    // The same with completions outstanding, which come in any order.
    let turns = [
        yields(&[(HELD, 7)], Continue),
        turn(Continue),
        turn(Wait(Either)),
        turn(Continue),
        turn(Done(2)),
    ];
    let told: [&[&str]; 5] = [NOTHING, NOTHING, NOTHING, &["completion 7 gave 700"], NOTHING];
    check(&turns, &[Act::Complete(7)], &told, Some(Ok(2)));
    let turns = [yields(&[(INLINE, 7)], Continue), turn(Continue), turn(Done(3))];
    check(&turns, &[], &[NOTHING, &["completion 7 gave 7"], NOTHING], Some(Ok(3)));
}

#[test]
fn waiting_for_messages_keeps_completions() {
    let turns =
        [yields(&[(HELD, 1), (HELD, 2)], Wait(Messages)), turn(Wait(Messages)), turn(Done(1))];
    let acts = [Act::Complete(2), Act::Send(5), Act::Complete(1), Act::Send(6)];
    let told: [&[&str]; 3] =
        [NOTHING, &["completion 2 gave 200", "message 5"], &["completion 1 gave 100", "message 6"]];
    check(&turns, &acts, &told, Some(Ok(1)));
    // With no completion outstanding.
    check(&turns[1..], &[Act::Send(5)], &[NOTHING, &["message 5"]], Some(Ok(1)));
    check(&turns[1..], &[], &[NOTHING], None);
}

#[test]
fn waiting_for_completions_keeps_messages() {
    let turns = [
        yields(&[(HELD, 1), (HELD, 2)], Wait(Completions)),
        turn(Wait(Completions)),
        turn(Done(1)),
    ];
    let acts = [Act::Send(5), Act::Send(6), Act::Complete(2), Act::Send(7), Act::Complete(1)];
    let told: [&[&str]; 3] = [
        NOTHING,
        &["message 5", "message 6", "completion 2 gave 200"],
        &["message 7", "completion 1 gave 100"],
    ];
    check(&turns, &acts, &told, Some(Ok(1)));
    check(&turns, &acts[..2], &[NOTHING], None);
}

#[test]
fn waiting_for_completions_with_none_outstanding_is_an_error() {
    check(&[turn(Wait(Completions))], &[], &[NOTHING], Some(Err(Exit::WaitsForNothing)));
    // The same when the last completion has come and messages wait.
    let turns = [yields(&[(HELD, 1)], Wait(Completions)), turn(Wait(Completions))];
    let acts = [Act::Send(5), Act::Complete(1)];
    check(
        &turns,
        &acts,
        &[NOTHING, &["message 5", "completion 1 gave 100"]],
        Some(Err(Exit::WaitsForNothing)),
    );
    // A completion that has come but was not received yet counts as outstanding.
    let turns = [
        yields(&[(INLINE, 1)], Wait(Messages)),
        yields(&[(INLINE, 2)], Wait(Completions)),
        turn(Wait(Completions)),
    ];
    let told: [&[&str]; 3] =
        [NOTHING, &["completion 1 gave 1", "message 5"], &["completion 2 gave 2"]];
    check(&turns, &[Act::Send(5)], &told, Some(Err(Exit::WaitsForNothing)));
}

#[test]
fn waiting_for_either_steps_for_both() {
    let turns =
        [yields(&[(HELD, 1)], Wait(Either)), turn(Wait(Either)), turn(Wait(Either)), turn(Done(1))];
    let acts = [Act::Send(5), Act::Complete(1), Act::Send(6)];
    check(
        &turns,
        &acts,
        &[NOTHING, &["message 5"], &["completion 1 gave 100"], &["message 6"]],
        Some(Ok(1)),
    );
    // With none outstanding, it waits for messages.
    check(&turns[2..], &[], &[NOTHING], None);
    check(&turns[2..], &acts[..1], &[NOTHING, &["message 5"]], Some(Ok(1)));
}

#[test]
fn done_and_errors_drop_what_the_step_yields() {
    // The handler never sees a command that the last step yields: its completion would be completed
    // immediately, or be held.
    for (end, exit) in [(Done(1), Ok(1)), (Fail("broken"), Err(Exit::Failed("broken".into())))] {
        let turns = [yields(&[(HELD, 1)], Wait(Messages)), yields(&[(HELD, 2), (INLINE, 3)], end)];
        let mut play = Play::begin(&turns);
        play.act(&Act::Send(5));
        play.scheduler.run_until_idle();
        play.kept.extend(play.held.try_iter());
        assert_eq!(
            play.kept.iter().map(|kept| kept.0).collect::<Vec<_>>(),
            [1],
            "2 has not been dispatched"
        );
        assert_eq!(play.end(), Some(exit));
    }
}

#[test]
fn every_end_closes_once() {
    let killed = || Some(Err(Exit::Killed));
    let panicked = |text: &str| Some(Err(Exit::Panicked(text.into())));
    check(&[turn(Done(1))], &[], &[NOTHING], Some(Ok(1)));
    check(&[turn(Fail("broken"))], &[], &[NOTHING], Some(Err(Exit::Failed("broken".into()))));
    check(&[turn(Panic("ouch"))], &[], &[NOTHING], panicked("ouch"));
    check(&[yields(&[(HELD, 1), (INLINE, 2)], Panic("ouch"))], &[], &[NOTHING], panicked("ouch"));
    for waiting_for in [Messages, Either] {
        check(&[turn(Wait(waiting_for))], &[Act::Terminate], &[NOTHING], killed());
    }
    let blocked = [yields(&[(HELD, 1)], Wait(Completions))];
    check(&blocked, &[Act::Send(1), Act::Terminate], &[NOTHING], killed());
    // With events left, which are discarded.
    check_at_once(
        &blocked,
        &[Act::Send(1), Act::Complete(1), Act::Terminate],
        &[NOTHING],
        killed(),
    );
    // Before the first step: the machine is closed, too, since `init` accepted it.
    let scheduler = driven();
    let closed = Arc::new(AtomicUsize::new(0));
    let machine = Scripted {
        turns: Vec::new().into_iter(),
        told: Arc::default(),
        closed: Arc::clone(&closed),
    };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "play", Box::new(()))
        .expect("it has this method");
    child.send(1).expect("it lives");
    procession::process::kill(child.pid());
    assert_eq!(child.join(), Err(Exit::Killed));
    assert_eq!(closed.load(Relaxed), 1);
    // By the end of its scheduler, without a handle to wait for it.
    let machine =
        Scripted { turns: vec![turn(Wait(Messages))].into_iter(), told: Arc::default(), closed };
    let closed = Arc::clone(&machine.closed);
    drop(
        SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine, "play", Box::new(()))
            .expect("it has this method"),
    );
    scheduler.run_until_idle();
    drop(scheduler);
    assert_eq!(closed.load(Relaxed), 2);
}

#[test]
fn events_come_in_the_order_in_which_they_happened() {
    let turns = [
        yields(&[(HELD, 1), (HELD, 2), (HELD, 3)], Wait(Either)),
        turn(Wait(Either)),
        turn(Done(1)),
    ];
    let acts = [
        Act::Send(1),
        Act::Complete(3),
        Act::Send(2),
        Act::Send(3),
        Act::Fail(1),
        Act::Send(4),
        Act::Drop(2),
    ];
    let together = [
        "message 1",
        "completion 3 gave 300",
        "message 2",
        "message 3",
        "completion 1 the command failed: as told",
        "message 4",
        "completion 2 the handler dropped the completion",
    ];
    check_at_once(&turns, &acts, &[NOTHING, &together], None);
    // Also with events that are kept over several wake-ups without a step.
    let turns = [yields(&[(HELD, 1), (HELD, 2), (HELD, 3)], Wait(Messages)), turn(Done(1))];
    let acts = [Act::Complete(3), Act::Complete(1), Act::Complete(2), Act::Send(9)];
    let told: &[&str] =
        &["completion 3 gave 300", "completion 1 gave 100", "completion 2 gave 200", "message 9"];
    check(&turns, &acts, &[NOTHING, told], Some(Ok(1)));
    check_at_once(&turns, &acts, &[NOTHING, told], Some(Ok(1)));
}

#[test]
fn a_cancel_is_told_once_and_ends_every_wait() {
    for waiting_for in [Messages, Completions, Either] {
        let turns =
            [yields(&[(HELD, 1)], Wait(waiting_for)), turn(Wait(waiting_for)), turn(Done(1))];
        let acts = [Act::Cancel, Act::Cancel, Act::Cancel];
        check(&turns, &acts, &[NOTHING, &["cancel"]], None);
        check_at_once(&turns, &acts, &[NOTHING, &["cancel"]], None);
        let last = if waiting_for == Completions { Act::Complete(1) } else { Act::Send(4) };
        let told = if waiting_for == Completions { "completion 1 gave 100" } else { "message 4" };
        check(&turns, &[Act::Cancel, last], &[NOTHING, &["cancel"], &[told]], Some(Ok(1)));
    }
}

#[test]
fn a_cancel_does_not_deliver_before_what_came_before_it() {
    let turns = [yields(&[(HELD, 1)], Wait(Completions)), turn(Done(1))];
    let acts = [Act::Send(5), Act::Cancel];
    check(&turns, &acts, &[NOTHING, &["message 5", "cancel"]], Some(Ok(1)));
    // A machine that was cancelled before its first step receives the cancel in its first step.
    let scheduler = driven();
    let told = Arc::new(Mutex::new(Vec::new()));
    let turns = vec![turn(Wait(Messages)), turn(Done(1))].into_iter();
    let machine = Scripted { turns, told: Arc::clone(&told), closed: Arc::default() };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "play", Box::new(()))
        .expect("it has this method");
    child.send(1).expect("it lives");
    child.cancel();
    scheduler.run_until_idle();
    child.send(2).expect("it lives");
    assert_eq!(child.join(), Ok(1));
    assert_eq!(*told.lock(), [vec!["message 1", "cancel"], vec!["message 2"]]);
}

#[test]
fn kept_messages_of_a_machine_that_is_terminated_are_discarded() {
    // A second cancel wakes it for nothing, while a message is kept.
    let turns = [yields(&[(HELD, 1)], Wait(Either)), turn(Wait(Completions))];
    let acts = [Act::Cancel, Act::Send(1), Act::Cancel, Act::Send(2), Act::Terminate];
    check(&turns, &acts, &[NOTHING, &["cancel"]], Some(Err(Exit::Killed)));
}

/// Panics in its first step, after it has taken one event.
struct FailsEarly;

impl Process for FailsEarly {
    type Input = ();
    type Message = u32;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
        match events.next() {
            Some(_) => panic_quietly("on purpose"),
            None => Ok(Status::Wait(Messages)),
        }
    }
}

#[test]
fn messages_that_a_failing_step_has_not_taken_count_as_discarded() {
    let letters = Arc::new(AtomicUsize::new(0));
    let buried = Arc::clone(&letters);
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .on_exit(|_| {})
        .on_dead_letter(move |_| {
            buried.fetch_add(1, Relaxed);
        })
        .build()
        .expect("it starts no thread");
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(FailsEarly, "", ())
        .expect("it accepts everything");
    (0..3).for_each(|n| child.send(n).expect("it lives"));
    child.join().expect_err("it panicked");
    let snapshot = scheduler.snapshot();
    let counts = (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
    assert_eq!((counts, letters.load(Relaxed)), ((3, 1, 2), 2));
    assert_conserved(&scheduler);
}

#[test]
fn init_chooses_the_method_and_may_refuse() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_processes(1)
        .build()
        .expect("it starts no thread");
    let closed = Arc::new(AtomicUsize::new(0));
    let machine = || Scripted {
        turns: vec![turn(Done(1))].into_iter(),
        told: Arc::default(),
        closed: Arc::clone(&closed),
    };
    let input = |text: &'static str| -> Value { Box::new(text) };
    let cases = [
        ("stop", "", "it has no method \"stop\"", None),
        ("", "", "it has no method \"\"", None),
        ("refuse", "", "it refused its input: not today", Some("not today")),
        ("input", "bad", "it refused its input: bad input", Some("bad input")),
        ("panic", "", "its init panicked: stage fright", None),
        (
            "exit",
            "",
            "it refused its input: the process failed: no stage",
            Some("the process failed: no stage"),
        ),
    ];
    for (method, value, text, source) in cases {
        let error = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine(), method, input(value))
            .expect_err(text);
        assert_eq!(error.to_string(), format!("cannot start a process: {text}"));
        assert_eq!(error.source().map(ToString::to_string).as_deref(), source);
        assert_eq!(error.init_error().map(ToString::to_string).as_deref(), Some(text));
        assert!(!error.is_limit() && !error.is_closing());
        assert_eq!(error.into_inner().turns.len(), 1, "the machine comes back as it was");
    }
    assert_eq!(closed.load(Relaxed), 0, "what init does not accept is not closed");
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.spawned, snapshot.panicked, snapshot.processes.len()), (0, 0, 0));
    // The only slot is free for a machine that `init` accepts.
    assert_eq!(
        SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine(), "input", input("good"))
            .expect("it accepts this")
            .join(),
        Ok(1)
    );
    assert_eq!(closed.load(Relaxed), 1);
}

#[test]
fn a_waiting_machine_says_what_it_waits_for() {
    let cases =
        [(Messages, "message"), (Completions, "completion"), (Either, "message, completion")];
    for (waiting_for, text) in cases {
        let play = Play::begin(&[yields(&[(HELD, 1)], Wait(waiting_for))]);
        let waiting = play.scheduler.run_until_idle();
        let told: Vec<_> =
            waiting.iter().map(|waits| (waits.pid, waits.waiting.to_string())).collect();
        assert_eq!(told, [(play.child.pid(), text.to_owned())]);
        let state = play.scheduler.snapshot().processes[0].state;
        assert_eq!(state == ProcessState::Blocked, waiting_for == Completions, "{state:?}");
    }
}
