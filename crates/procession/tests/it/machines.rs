//! State machines: status and yields, events, commands and their completions, and their ends.
//!
//! Method: a machine that plays a script, one [`Turn`] for each step, and records the events of
//! each step. A test consists of a script, of what happens to the machine meanwhile, of the
//! expected events, and of the expected end.

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use procession::command::{CommandError, CommandId, CommandResult, Completion, Value};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::WhenFull;
use procession::snapshot::ProcessState;
use procession::time::Instant;
use procession::{Child, Event, Exit, Scheduler, SpawnOptions, current_pid, exit};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::{assert_conserved, driven, panic_quietly, soon};

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
use End::{Continue, Done, Fail, Panic, Wait};
use WaitingFor::{Completions, Either, Messages};

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
    type Input = procession::command::Value;
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
fn stage(builder: procession::Builder) -> (Scheduler, mpsc::Receiver<(u64, Completion)>) {
    let (hold, held) = mpsc::channel();
    let hold = Mutex::new(hold);
    let tag = |input: &Value| *input.downcast_ref::<u64>().expect("the machine sends tags");
    let scheduler = builder
        .handler(HELD, move |input: Value, completion: Completion| {
            hold.lock().send((tag(&input), completion)).expect("the test waits");
        })
        .handler(INLINE, |input: Value, completion: Completion| completion.complete(Ok(input)))
        .handler(THREAD, |input: Value, completion: Completion| {
            std::thread::scope(|scope| {
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
        let child =
            scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
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
            Act::Terminate => assert!(self.scheduler.terminate(self.child.pid())),
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
    let child = scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
    child.send(1).expect("it lives");
    scheduler.terminate(child.pid());
    assert_eq!(child.join(), Err(Exit::Killed));
    assert_eq!(closed.load(Relaxed), 1);
    // By the end of its scheduler, without a handle to wait for it.
    let machine =
        Scripted { turns: vec![turn(Wait(Messages))].into_iter(), told: Arc::default(), closed };
    let closed = Arc::clone(&machine.closed);
    drop(scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method"));
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
    let child = scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
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
            options.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
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
    let child = scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
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
        scheduler.spawn_machine(machine, "play", Box::new(())).expect("there is room")
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
        ("refuse", "", "it refused its input", Some("not today")),
        ("input", "bad", "it refused its input", Some("bad input")),
        ("panic", "", "its init panicked: stage fright", None),
        ("exit", "", "it refused its input", Some("the process failed: no stage")),
    ];
    for (method, value, text, source) in cases {
        let error = scheduler.spawn_machine(machine(), method, input(value)).expect_err(text);
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
        scheduler.spawn_machine(machine(), "input", input("good")).expect("it accepts this").join(),
        Ok(1)
    );
    assert_eq!(closed.load(Relaxed), 1);
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
        assert!(text.starts_with(&format!("command {id} belongs to the runtime")), "{text}");
    }
    assert_eq!(CommandId::try_from(256), Ok(CommandId::FIRST_FREE));
    let most = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .handler(CommandId::new(256), nothing);
    most.handler(UNKNOWN, nothing).build().expect("the last number is a number");
}

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
    (scheduler.spawn_machine(machine, "", ()).expect("it accepts everything"), told)
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
            scheduler.terminate(child.pid());
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
    let child =
        scheduler.spawn_machine(Canceller(false, tell), "", ()).expect("it accepts everything");
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

#[test]
fn the_test_clock_waits_for_completions() {
    let (scheduler, held) = stage(Scheduler::builder().worker_threads(1).test_clock());
    let turns = vec![yields(&[(HELD, 1)], Wait(Completions)), turn(Done(1))].into_iter();
    let machine = Scripted { turns, told: Arc::default(), closed: Arc::default() };
    let child = scheduler.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
    let begin = scheduler.now();
    std::thread::scope(|scope| {
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
        std::thread::scope(|scope| {
            scope.spawn(move || {
                held.into_iter().for_each(|(tag, held)| held.complete(Ok(Box::new(tag))))
            });
            let machines: Vec<_> = (0..MACHINES)
                .map(|_| {
                    scheduler.spawn_machine(Rounds(0, 0), "", ()).expect("it accepts everything")
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
            let name = std::thread::current().name().map(str::to_owned);
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
            options.spawn_machine(machine, "play", Box::new(())).expect("it has this method");
        assert_eq!(child.join(), Ok(1));
        assert_eq!(soon(&told), Some(format!("served-{worker}")));
    }
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
    let child = scheduler.spawn_machine(serves, "begin", ()).expect("it refuses nothing");
    std::thread::scope(|scope| {
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
