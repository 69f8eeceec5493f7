//! Outputs of processes that report a failure: the exit that others learn, and the output that the
//! handle returns. And errors that travel: with `?`, and apart from what was refused.

use crate::home::mpsc;
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::mailbox::{CallCause, Event, SendCause};
use procession::process::{Outcome, exit, link};
use procession::supervisor::{ChildSpec, Restart, Supervisor};
use procession::{
    Address, CallError, Context, Exit, Pid, Reply, Scheduler, SendError, SpawnOptions, coroutine,
    sleep, yield_now,
};

use crate::scene::{assert_conserved, driven, panic_quietly, soon, threaded};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns its output in its first step.
struct Returns<T>(Option<T>);

impl<T: Outcome + Send + 'static> Process for Returns<T> {
    type Input = ();
    type Message = ();
    type Output = T;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<T>, Box<dyn Error + Send + Sync>> {
        Ok(Status::Done(self.0.take().expect("it returns once")))
    }
}

/// Returns a scheduler with coroutines, one worker, and a clock that moves when nothing else can.
fn with_coroutines() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: no coroutine here keeps a thread-local pointer that is scoped to a frame.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let builder = unsafe { builder.enable_coroutines() };
    builder.build().expect("it starts no thread")
}

/// The ways to start a process that returns `output`. Each returns the monitored process and the
/// output that its handle returns.
fn start_each<T: Outcome + Clone + Send + 'static>(output: &T) -> Vec<(&'static str, Started<T>)> {
    let options = || SpawnOptions::new().monitor();
    let (one, two, three, four, five) =
        (output.clone(), output.clone(), output.clone(), output.clone(), output.clone());
    let started = options().start(|_: Context<()>| async { one });
    let fallible = options().spawn_fallible(async { two });
    let machine = options().try_start_machine(Returns(Some(three)), "", ()).expect("there is room");
    let coroutine = options()
        .try_start_coroutine(|_: coroutine::Context<()>| four)
        .expect("coroutines are enabled");
    // SAFETY: nothing is on its stack while it waits, since it never does.
    #[expect(unsafe_code, reason = "the contract of coroutines that migrate")]
    let migrates = unsafe { options().try_start_migratable(|_: coroutine::Context<()>| five) }
        .expect("as above");
    vec![
        ("start", (started.monitor_ref(), started.into_parts().1)),
        ("spawn_fallible", (fallible.monitor_ref(), fallible)),
        ("machine", (machine.monitor_ref(), machine.into_parts().1)),
        ("coroutine", (coroutine.monitor_ref(), coroutine.into_parts().1)),
        ("migratable", (migrates.monitor_ref(), migrates.into_parts().1)),
    ]
}

type Started<T> = (Option<procession::process::MonitorRef>, procession::JoinHandle<T>);

/// Returns the exit that a monitor sees of each kind of process that returns `output`, with what
/// the handle returns.
fn ends<T>(output: T) -> Vec<(&'static str, Exit, Result<T, Exit>)>
where
    T: Outcome + Clone + Send + Sync + 'static,
{
    let scheduler = with_coroutines();
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let mut ends = Vec::new();
        for (kind, (monitor, handle)) in start_each(&output) {
            let down = cx.down(monitor.expect("it is monitored")).await;
            ends.push((kind, down.expect("it is not cancelled").exit, handle.await));
        }
        ends
    });
    let ends = watcher.join().expect("it returns");
    assert_conserved(&scheduler);
    ends
}

#[track_caller]
fn check<T>(output: T, exit: &Exit)
where
    T: Outcome + Clone + PartialEq + fmt::Debug + Send + Sync + 'static,
{
    for (kind, found, returned) in ends(output.clone()) {
        assert_eq!(found, *exit, "{kind} with the output {output:?}");
        assert_eq!(returned, Ok(output.clone()), "{kind}: the handle returns the output");
    }
}

#[test]
fn an_err_fails_every_kind_of_process_and_the_handle_keeps_it() {
    let broken = Exit::failed("broken");
    check(Ok::<u8, String>(1), &Exit::Normal);
    check(Err::<u8, &str>("broken"), &broken);
    check(Some(Err::<(), _>(String::from("broken"))), &broken);
    check(None::<Result<(), String>>, &Exit::Normal);
    check(Ok::<_, String>(Err::<(), _>("broken")), &broken);
    check(Box::new(Err::<(), _>("broken")), &broken);
    check(Exit::Shutdown, &Exit::Shutdown);
    check(Err::<(), _>(Exit::Killed), &Exit::Killed);
    check(Err::<(), _>(Exit::Normal), &Exit::Normal);
    // These are data.
    check(vec![Err::<(), _>("broken")], &Exit::Normal);
    check((Err::<(), _>("broken"), 1), &Exit::Normal);
    check([Err::<(), _>("broken")], &Exit::Normal);
    check(Arc::new(Err::<(), _>("broken")), &Exit::Normal);
}

#[test]
fn plain_spawn_ends_normally_whatever_it_returns() {
    struct Anything;
    let scheduler = driven();
    let watcher = scheduler.start(|mut cx: Context<()>| async move {
        let options = || SpawnOptions::new().monitor();
        let fails = options().spawn(async { Err::<(), _>("broken") });
        let returns = options().spawn(async { Anything });
        for monitor in [fails.monitor_ref(), returns.monitor_ref()] {
            let down = cx.down(monitor.expect("it is monitored")).await;
            assert_eq!(down.map(|down| down.exit), Some(Exit::Normal));
        }
        assert_eq!(fails.await, Ok(Err("broken")));
    });
    assert_eq!(watcher.join(), Ok(()));
}

#[test]
fn a_process_that_never_returns_is_an_outcome() {
    let scheduler = driven();
    let loops = scheduler.start(|mut cx: Context<()>| async move {
        loop {
            cx.recv_event().await;
            sleep(HOUR).await;
        }
    });
    let fails =
        SpawnOptions::new().on(&scheduler).spawn_fallible(async { panic_quietly("broken") });
    assert_eq!(fails.join().err(), Some(Exit::Panicked("broken".into())));
    procession::process::kill(loops.pid());
    assert_eq!(loops.join().err(), Some(Exit::Killed));
}

#[test]
fn an_err_ends_linked_processes() {
    let scheduler = driven();
    let linked = scheduler.start(|mut cx: Context<Pid>| async move {
        if let Some(pid) = cx.recv().await {
            link(pid);
        }
        cx.cancelled().await;
    });
    let fails = scheduler.start(|mut cx: Context<()>| async move {
        cx.recv().await;
        Err::<(), _>(io::Error::other("no space left"))
    });
    linked.send(fails.pid()).expect("it waits");
    scheduler.run_until_idle();
    fails.send(()).expect("it waits");
    scheduler.run_until_idle();
    let ended = linked.join_timeout(HOUR).expect("its partner has failed");
    assert_eq!(ended, Err(Exit::failed("no space left")));
}

#[test]
fn a_transient_child_that_fails_is_restarted_and_one_that_returns_is_not() {
    for (fails, restarts) in [(true, 3), (false, 0)] {
        let scheduler = with_coroutines();
        let (starts, started) = mpsc::channel();
        let output = move || if fails { Err("broken") } else { Ok(()) };
        let note = move |id: &'static str| {
            let starts = starts.clone();
            move || starts.send(id).expect("the test waits")
        };
        let (one, two, three, four) =
            (note("async"), note("init"), note("coroutine"), note("machine"));
        let children = [
            ChildSpec::new("async", move |_: Context<()>| {
                one();
                async move { output() }
            }),
            ChildSpec::with_init("init", move |_: Context<()>, started| {
                two();
                started.ready();
                async move { output() }
            }),
            ChildSpec::coroutine("coroutine", move |_: coroutine::Context<()>| {
                three();
                output()
            }),
            ChildSpec::machine(
                "machine",
                move || {
                    four();
                    Returns(Some(output()))
                },
                "",
                || (),
            ),
        ];
        for child in children {
            let tree = Supervisor::one_for_one()
                .intensity(restarts, HOUR)
                .child(child.restart(Restart::Transient));
            let running =
                scheduler.block_on(tree.try_start_with(SpawnOptions::new().on(&scheduler)));
            let running = running.expect("the child starts");
            scheduler.run_until_idle();
            let count = started.try_iter().collect::<Vec<_>>();
            assert_eq!(count.len(), 1 + restarts as usize, "{count:?}");
            if !fails {
                running.cancel();
            }
            let exit = scheduler.block_on(running);
            assert_eq!(matches!(exit, Exit::GaveUp(_)), fails, "{exit}");
            assert!(fails || exit == Exit::Shutdown, "{exit}");
        }
    }
}

/// An error with sources.
#[derive(Debug)]
struct Layer(&'static str, Option<Box<Layer>>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|layer| layer as &dyn Error)
    }
}

fn layers() -> Layer {
    Layer(
        "no answer",
        Some(Box::new(Layer("cannot connect", Some(Box::new(Layer("refused", None)))))),
    )
}

/// Writes its causes in the alternate form, as the errors of anyhow do.
#[derive(Debug)]
struct Alternate;

impl fmt::Display for Alternate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if f.alternate() { "outer: inner" } else { "outer" })
    }
}

#[track_caller]
fn fails_with<E: fmt::Display + 'static>(error: E, text: &str) {
    assert_eq!(Err::<(), E>(error).failure(), Some(Exit::failed(text)));
}

#[test]
fn the_text_of_an_error_has_its_sources_where_they_can_be_found() {
    type Thread = dyn Error + Send + Sync;
    let all = "no answer: cannot connect: refused";
    fails_with::<Box<Thread>>(Box::new(layers()), all);
    fails_with::<Arc<Thread>>(Arc::new(layers()), all);
    fails_with::<Box<dyn Error + Send>>(Box::new(layers()), all);
    fails_with::<Box<dyn Error>>(Box::new(layers()), all);
    // An `io::Error` that wraps an error is transparent.
    fails_with(io::Error::other(layers()), all);
    fails_with(Alternate, "outer: inner");
    fails_with(layers(), "no answer");
    // The errors of the crate have theirs.
    let refused: SendError<Cell<u32>> = ended().send(Cell::new(1)).expect_err("ended");
    let (pid, error) = (refused.pid(), CallError::Refused(refused));
    fails_with(
        error,
        &format!(
            "cannot call: the message was refused: cannot send to {pid}: the process has ended"
        ),
    );
    // A boxed exit stays as it is.
    let boxed: Box<Thread> = Box::new(Exit::Shutdown);
    assert_eq!(Err::<(), _>(boxed).failure(), Some(Exit::Shutdown));
}

/// Starts a process, and returns it once it has ended.
fn ended() -> procession::Child<Cell<u32>, ()> {
    let scheduler = driven();
    let child = scheduler.start(|_: Context<Cell<u32>>| async {});
    scheduler.run_until_idle();
    child
}

#[test]
fn the_text_of_an_error_is_bounded_and_cut_between_characters() {
    /// Writes without an end, until it is refused.
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("x")?;
            loop {
                f.write_str("é")?;
            }
        }
    }

    let Some(Exit::Failed(text)) = Err::<(), _>(Endless).failure() else { panic!("it failed") };
    assert_eq!(text.len(), 4095, "the last character would end at 4097");
    assert!(text.starts_with('x') && text.ends_with('é'));
    fails_with(String::from_utf8(vec![b'y'; 5000]).expect("it is ASCII"), &"y".repeat(4096));
}

/// Panics when it is written, and when it is dropped.
#[derive(Clone, Debug)]
struct Hostile {
    on_drop: bool,
    exits: bool,
}

impl fmt::Display for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exits {
            exit(Exit::failed("in its text"));
        }
        panic_quietly("cannot be written")
    }
}

impl Error for Hostile {}

impl Drop for Hostile {
    fn drop(&mut self) {
        if self.on_drop {
            panic_quietly("dropped");
        }
    }
}

#[test]
fn an_error_that_panics_when_it_is_written_ends_its_process_alone() {
    for exits in [false, true] {
        let exit = if exits {
            Exit::failed("in its text")
        } else {
            Exit::Panicked("cannot be written".into())
        };
        for (kind, found, returned) in ends(Err::<(), _>(Hostile { on_drop: false, exits })) {
            assert_eq!(found, exit, "{kind}");
            assert_eq!(returned.err().as_ref(), Some(&exit), "{kind}");
        }
    }
}

#[test]
fn an_error_that_panics_when_it_is_written_and_dropped_aborts_nothing() {
    /// Fails by the error of its step.
    struct Steps;

    impl Process for Steps {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            _: &mut Events<()>,
            _: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
            Err(Box::new(Hostile { on_drop: true, exits: false }))
        }
    }

    let hostile = || Err::<(), _>(Hostile { on_drop: true, exits: false });
    let scheduler = with_coroutines();
    let written = Exit::Panicked("cannot be written".into());
    let start = scheduler.start(move |_: Context<()>| async move { hostile() });
    assert_eq!(start.join().err(), Some(written.clone()));
    let machine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Returns(Some(hostile())), "", ())
        .expect("there is room");
    assert_eq!(machine.join().err(), Some(written.clone()));
    let steps =
        SpawnOptions::new().on(&scheduler).try_start_machine(Steps, "", ()).expect("there is room");
    assert_eq!(steps.join().err(), Some(written.clone()));
    let coroutine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(move |_: coroutine::Context<()>| hostile());
    assert_eq!(coroutine.expect("they are enabled").join().err(), Some(written));
    // The worker and the counts of coroutines are as before.
    for _ in 0..3 {
        let next = SpawnOptions::new()
            .on(&scheduler)
            .try_start_coroutine(|_: coroutine::Context<()>| coroutine::yield_now());
        assert_eq!(next.expect("they are enabled").join(), Ok(()));
    }
    assert_conserved(&scheduler);
}

/// The error of a program, with one variant for each way to reach a process.
#[derive(Debug)]
enum AppError {
    Send(SendCause),
    Call(CallCause),
    Ended(Exit),
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the application failed")
    }
}

impl Error for AppError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Send(cause) => cause,
            Self::Call(cause) => cause,
            Self::Ended(exit) => exit,
        })
    }
}

impl<M> From<SendError<M>> for AppError {
    fn from(error: SendError<M>) -> Self {
        Self::Send(error.into())
    }
}

impl<M> From<CallError<M>> for AppError {
    fn from(error: CallError<M>) -> Self {
        Self::Call(error.into())
    }
}

impl From<Exit> for AppError {
    fn from(exit: Exit) -> Self {
        Self::Ended(exit)
    }
}

/// A message that is `Send` and not `Sync`.
enum Ask {
    Set(Cell<u32>),
    Get(Reply<u32>),
}

async fn ask_boxed(to: &Address<Ask>) -> Result<u32, Box<dyn Error + Send + Sync + 'static>> {
    to.send(Ask::Set(Cell::new(2)))?;
    Ok(to.call(Ask::Get, HOUR).await?)
}

async fn ask_typed(to: &Address<Ask>) -> Result<u32, AppError> {
    to.send(Ask::Set(Cell::new(3)))?;
    let sum = to.call(Ask::Get, HOUR).await?;
    procession::spawn(async {}).await?;
    Ok(sum)
}

#[test]
fn errors_of_messages_that_are_not_sync_travel_with_the_question_mark() {
    let scheduler = driven();
    let server = scheduler.start(|mut cx: Context<Ask>| async move {
        let mut sum = 0;
        while let Some(message) = cx.recv().await {
            match message {
                Ask::Set(value) => sum += value.get(),
                Ask::Get(reply) => reply.send(sum),
            }
        }
    });
    let address = server.address().clone();
    let asks = scheduler.spawn(async move {
        let boxed = ask_boxed(&address).await.map_err(|error| error.to_string());
        (boxed, ask_typed(&address).await.ok())
    });
    assert_eq!(asks.join(), Ok((Ok(2), Some(5))));

    let address = server.address().clone();
    server.cancel();
    assert_eq!(server.join(), Ok(()));
    scheduler.block_on(async {
        let boxed = ask_boxed(&address).await.expect_err("the server has ended");
        assert!(boxed.downcast_ref::<SendError<Ask>>().is_some_and(SendError::is_ended));
        let typed = ask_typed(&address).await.expect_err("the server has ended");
        assert!(matches!(typed, AppError::Send(ref cause) if cause.is_ended()), "{typed:?}");
        let refused = address.call(Ask::Get, HOUR).await.expect_err("the server has ended");
        let (message, cause) = refused.into_parts();
        assert!(matches!(message, Some(Ask::Get(_))));
        assert!(matches!(cause, CallCause::Refused(cause) if cause.is_ended()));
    });
}

#[test]
fn a_context_is_shared_across_an_await_whatever_its_messages() {
    async fn pid_of<M: Send + 'static>(cx: &Context<M>) -> Pid {
        yield_now().await;
        cx.pid()
    }

    let scheduler = threaded(2);
    let (pids, known) = mpsc::channel();
    let child = scheduler.start(move |mut cx: Context<Cell<u32>>| async move {
        let mut sum = 0;
        while let Some(number) = cx.recv().await {
            pids.send(pid_of(&cx).await).expect("the test waits");
            sum += number.get();
        }
        let shared = &cx;
        shared.cancelled().await;
        yield_now().await;
        (sum, shared.is_cancelled())
    });
    child.send(Cell::new(4)).expect("it lives");
    assert_eq!(soon(&known), child.pid());
    child.cancel();
    assert_eq!(child.join(), Ok((4, true)));
}

#[test]
fn a_trapped_exit_carries_the_text_of_the_error() {
    let scheduler = driven();
    let traps = scheduler.start(|mut cx: Context<()>| async move {
        cx.trap_exits(true);
        drop(SpawnOptions::new().link().spawn_fallible(async { Err::<(), _>("broken") }));
        match cx.recv_event().await {
            Some(Event::Exit(signal)) => Some(signal.exit),
            _ => None,
        }
    });
    // `Some` of an exit is an outcome that reports it, and the handle returns it as it is.
    assert_eq!(traps.join(), Ok(Some(Exit::failed("broken"))));
}
