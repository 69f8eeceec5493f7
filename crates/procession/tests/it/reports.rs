//! Reports of failures: what is reported, where it goes, and that it holds nobody up.
//!
//! Method: what a hook receives is tested here, on the test clock. What is printed is tested in a
//! child process that runs the same test again.

mod catches;
mod gone;
mod reached;

use crate::home::mpsc;
use std::env;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::WhenFull;
use procession::observe::{
    ChildFailure, ExitReport, ReportLevel, Reporting, SupervisorEvent, SupervisorReport,
    install_panic_hook,
};
use procession::process::{exit, link};
use procession::scheduler::Builder;
use procession::supervisor::{ChildSpec, Restart, Stop, Supervisor};
use procession::{
    Context, Exit, JoinHandle, Scheduler, SpawnOptions, coroutine, sleep, spawn, start,
};
use procession_sync::Mutex;

use crate::scene::{TIMEOUT, panic_quietly, threaded};

type Log<R> = Arc<Mutex<Vec<R>>>;

/// The name of the variable that makes this program the child of a test.
const CHILD: &str = "PROCESSION_TEST_REPORTS";

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows itself"));
    let test = format!("reports::{test}");
    command.args(["--exact", "--nocapture", "--test-threads=1", &test]);
    command.env(CHILD, "").env("RUST_BACKTRACE", "0");
    command
}

/// Returns what the child of a test prints on standard error.
fn printed(test: &str) -> String {
    let output = child(test).output().expect("the system has processes");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
    said
}

fn reports(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("procession: ")).collect()
}

/// A log of all reports, also of failures that reach somebody, and a scheduler on the test clock
/// that fills it.
fn observed() -> (Scheduler, Log<ExitReport>, Log<SupervisorReport>) {
    observed_with(Reporting::new().always())
}

fn observed_with(reporting: Reporting) -> (Scheduler, Log<ExitReport>, Log<SupervisorReport>) {
    let (exits, others) = <(Log<_>, Log<_>)>::default();
    let (to_exits, to_others) = (Arc::clone(&exits), Arc::clone(&others));
    let builder = Scheduler::builder().worker_threads(1).test_clock().name("observed");
    let builder = builder.reporting(reporting);
    let builder = builder.on_exit(move |report| to_exits.lock().push(report.clone()));
    let builder = builder.on_supervisor(move |report| to_others.lock().push(report.clone()));
    (enabled(builder), exits, others)
}

/// A scheduler with workers on their own threads, which reports all failures.
fn telling(width: usize) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(width);
    let builder = builder.reporting(Reporting::new().always());
    builder.build().expect("the system has threads")
}

fn enabled(builder: Builder) -> Scheduler {
    // SAFETY: none of the coroutines here refers to a thread-local.
    unsafe { builder.enable_coroutines() }.build().expect("it starts no thread")
}

/// A state machine that ends as its method says.
struct Ends(&'static str);

impl Process for Ends {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, method: &str, (): ()) -> Result<(), InitError> {
        self.0 = if method == "fails" { "fails" } else { "waits" };
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        if self.0 == "fails" {
            return Err("no disk".into());
        }
        Ok(Status::Wait(WaitingFor::Completions))
    }
}

#[test]
fn each_process_that_fails_by_itself_is_reported_once_and_no_other() {
    let (scheduler, exits, _) = observed();
    scheduler.block_on(async {
        let options = || SpawnOptions::new().on(&scheduler);
        let _: Result<(), _> = spawn(async { panic_quietly("one") }).await;
        let _: Result<(), _> = spawn(async { exit(Exit::failed("two")) }).await;
        drop(options().try_start_machine(Ends(""), "fails", ()).expect("there is room").await);
        drop(options().try_start_machine(Ends(""), "waits", ()).expect("there is room").await);
        let receives_nothing = || {
            options().mailbox(1, WhenFull::Kill).start(|cx: Context<u32>| async move {
                let _cx = cx;
                std::future::pending::<()>().await;
            })
        };
        let full = receives_nothing();
        full.send(1).expect("there is room");
        full.send(2).expect_err("it is full");
        drop(full.await);
        let mapped = receives_nothing();
        let recipient = mapped.map(u32::from);
        recipient.send(1_u8).expect("there is room");
        recipient.send(2).expect_err("it is full");
        drop(mapped.await);
        let large =
            options().stack_size(1 << 60).try_start_coroutine(|_: coroutine::Context<()>| ());
        drop(large.expect("they are enabled").await);
        let unwound = options()
            .try_start_coroutine(|_: coroutine::Context<()>| -> () { panic_quietly("seven") });
        drop(unwound.expect("they are enabled").await);

        // These end because others want it, or in order.
        for end in [Exit::Shutdown, Exit::Killed, Exit::Normal] {
            let _: Result<(), _> = spawn(async { exit(end) }).await;
        }
        let waits = spawn(std::future::pending::<()>());
        procession::process::kill(waits.pid());
        drop(waits.await);
        let waits = spawn(std::future::pending::<()>());
        procession::process::send_exit(waits.pid(), Exit::failed("from outside"));
        drop(waits.await);
        drop(spawn(std::future::pending::<()>()));
        drop(scheduler.shutdown(Duration::from_secs(1)).await);
    });
    let found: Vec<_> = exits.lock().iter().map(|report| report.exit.clone()).collect();
    let [one, two, fails, waits, full, mapped, stack, seven] = &found[..] else {
        panic!("{found:?}")
    };
    let expected = [
        Exit::Panicked("one".into()),
        Exit::failed("two"),
        Exit::failed("no disk"),
        Exit::WaitsForNothing,
        Exit::MailboxFull,
        Exit::MailboxFull,
        Exit::Panicked("seven".into()),
    ];
    assert_eq!([one, two, fails, waits, full, mapped, seven].map(Clone::clone), expected);
    assert!(matches!(stack, Exit::Failed(_)), "{stack:?}");
}

#[test]
fn a_failure_that_takes_others_along_is_one_report() {
    let (scheduler, exits, _) = observed();
    scheduler.block_on(async {
        let (fails, others) = mpsc::channel();
        let first = SpawnOptions::new().label("the first").spawn(async move {
            for _ in 0..100 {
                let linked = SpawnOptions::new().link().spawn(std::future::pending::<()>());
                fails.send(linked).expect("the test listens");
            }
            sleep(Duration::from_secs(1)).await;
            exit(Exit::MailboxFull);
        });
        let _: Result<(), _> = first.await;
        for linked in others {
            assert_eq!(linked.await, Err(Exit::MailboxFull));
        }
    });
    let labels: Vec<_> = exits.lock().iter().map(|report| report.label.clone()).collect();
    assert_eq!(labels, [Some("the first".into())]);
}

#[test]
fn a_report_says_all_about_its_process_and_is_one_line() {
    let (scheduler, exits, _) = observed();
    let line = line!() + 2;
    let (pid, parent) = scheduler.block_on(async {
        let parent = spawn(async {
            let label = "a\x1b[31m\nprocession: not a report";
            let child = SpawnOptions::new().label(label).name("audit").start(
                |mut cx: Context<u32>| async move {
                    cx.recv().await;
                    cx.recv().await;
                    exit(Exit::failed("first\nsecond\x07"));
                },
            );
            child.send(1).expect("it lives");
            child.send(2).expect("it lives");
            let pid = child.pid();
            let _: Result<(), _> = child.await;
            pid
        });
        (parent.pid(), parent.await.expect("it does not fail"))
    });
    let (parent, pid) = (pid, parent);
    let report = exits.lock().pop().expect("it failed");
    assert_eq!((report.pid, report.parent), (pid, Some(parent)));
    assert_eq!((report.kind, &*report.scheduler, report.received), ("async", "observed", 2));
    assert_eq!(report.name.as_deref(), Some("audit"));
    assert!(report.steps > 0 && report.location.line() > line && report.panicked_at.is_none());
    let label = r#""a\u{1b}[31m\nprocession: not a report""#;
    let failed = r"failed: first\nsecond\u{7}";
    let place = report.location;
    assert_eq!(report.to_string(), format!("{pid} {label} {failed}"));
    let all = format!("{pid} {label} (name \"audit\", async, spawned at {place}) {failed}");
    assert_eq!(format!("{report:#}"), all);
    // Something always says what the process is.
    let mut report = report;
    report.label = None;
    assert_eq!(report.to_string(), format!("{pid} (name \"audit\") {failed}"));
    report.name = None;
    assert_eq!(report.to_string(), format!("{pid} (spawned at {place}) {failed}"));
}

#[test]
fn the_hook_has_run_before_anyone_learns_of_the_end_and_may_use_the_runtime() {
    let (sender, heard) = mpsc::channel();
    let builder = Scheduler::builder().worker_threads(2).reporting(Reporting::new().always());
    let builder = builder.on_exit(move |report| {
        // The name is still there, so it can be looked up.
        let named = report.name.as_ref().and_then(|name| procession::process::whereis(name));
        let seen = (report.pid, named, procession::process::current_pid());
        let sender = sender.clone();
        drop(spawn(async move { sender.send(seen) }));
    });
    let scheduler = builder.build().expect("the system has threads");
    for _ in 0..100 {
        let fails =
            SpawnOptions::new().on(&scheduler).name("one").spawn(async { panic_quietly("broken") });
        let pid = fails.pid();
        let _: Result<(), _> = fails.join();
        let seen = heard.recv_timeout(TIMEOUT).expect("the hook spawned");
        assert_eq!(seen, (pid, Some(pid), Some(pid)));
    }
}

#[test]
fn a_supervisor_reports_restarts_and_why_it_gives_up() {
    let (scheduler, exits, others) = observed();
    let tree = Supervisor::one_for_one().intensity(2, Duration::from_secs(5)).child(
        ChildSpec::new("counter", |_: Context<()>| async { panic_quietly("out of order") })
            .restart(Restart::Transient),
    );
    scheduler.block_on(async {
        let options = SpawnOptions::new().label("tree").name("root");
        let running = tree.try_start_with(options).await.expect("it starts");
        let gave_up = "\"counter\" needs more than 2 restarts in 5 s; it panicked: out of order";
        assert_eq!(running.await, Exit::GaveUp(gave_up.into()));
    });
    let (exits, others) = (exits.lock(), others.lock());
    assert_eq!(exits.len(), 3, "the supervisor itself is not reported: {exits:?}");
    let lines: Vec<_> = others.iter().map(ToString::to_string).collect();
    let tree = format!("{} \"tree\"", others[0].supervisor);
    let child = |at: usize| format!("{} \"counter\", which panicked: out of order", exits[at].pid);
    let restarts = |at| format!("{tree} restarts {} (restart {} of 2 in 5 s)", child(at), at + 1);
    let gives_up = format!("{tree} gives up on {} (more than 2 restarts in 5 s)", child(2));
    assert_eq!(lines, [restarts(0), restarts(1), gives_up]);
    assert!(others.iter().all(|report| report.level == ReportLevel::Error));
}

#[test]
fn a_supervisor_reports_late_stops_and_failed_starts() {
    let (scheduler, exits, others) = observed();
    scheduler.block_on(async {
        let late = ChildSpec::new("late", |_: Context<()>| std::future::pending::<()>());
        let in_time = ChildSpec::new("in time", |mut cx: Context<()>| async move {
            cx.recv().await;
        });
        let late = late.stop(Stop::Within(Duration::from_millis(1500)));
        let tree = Supervisor::one_for_one().child(late).child(in_time);
        let running = tree.try_start().await.expect("it starts");
        running.cancel();
        drop(running.await);
        let fails = ChildSpec::with_init("disk", |_: Context<()>, started| async move {
            started.fail("no such device");
        });
        Supervisor::one_for_one().child(fails).try_start().await.expect_err("there is no disk");
    });
    let others = others.lock();
    let [late, fails] = &others[..] else { panic!("{others:?}") };
    assert!(late.to_string().ends_with(" \"late\", which did not stop within 1500 ms"), "{late}");
    assert!(matches!(late.event, SupervisorEvent::StoppedLate { .. }));
    assert_eq!((late.level, fails.level), (ReportLevel::Warn, ReportLevel::Error));
    let SupervisorEvent::NotStarted { reason, .. } = &fails.event else { panic!("{fails}") };
    assert_eq!((&**reason, fails.child.as_deref()), ("no such device", Some("disk")));
    assert!(fails.to_string().ends_with(" \"disk\": no such device"), "{fails}");
    assert!(exits.lock().is_empty(), "no process failed: {exits:?}");
}

#[test]
fn a_restart_that_fails_is_reported_as_the_next_restart() {
    let (scheduler, _, others) = observed();
    scheduler.block_on(async {
        let first = procession_sync::atomic::AtomicBool::new(true);
        let child = ChildSpec::machine(
            "machine",
            move || {
                if !first.swap(false, procession_sync::atomic::Ordering::Relaxed) {
                    panic_quietly("no more");
                }
                Ends("")
            },
            "fails",
            || (),
        );
        let tree = Supervisor::one_for_one().intensity(1, Duration::from_secs(5)).child(child);
        drop(tree.try_start().await.expect("it starts").await);
    });
    let others = others.lock();
    let [restarts, gives_up] = &others[..] else { panic!("{others:?}") };
    assert!(matches!(
        &restarts.event,
        SupervisorEvent::Restarts { failure: ChildFailure::Ended(Exit::Failed(_)), restart: 1, .. }
    ));
    assert!(matches!(
        &gives_up.event,
        SupervisorEvent::GaveUp { failure: ChildFailure::NotStarted(_), .. }
    ));
    assert!(gives_up.to_string().contains(", which did not start: the process panicked: no more"));
}

#[test]
fn failures_are_printed_by_default_and_a_program_that_ends_at_once_has_printed_them() {
    if !is_child() {
        let said = printed(
            "failures_are_printed_by_default_and_a_program_that_ends_at_once_has_printed_them",
        );
        let [failed, restarts, gives_up] = reports(&said)[..] else { panic!("{said}") };
        assert!(failed.ends_with(" \"cache\" failed: no room"), "{said}");
        let which = " \"db\", which failed: no disk (";
        assert!(restarts.contains(" \"supervisor\" restarts p"), "{said}");
        assert!(restarts.ends_with(&format!("{which}restart 1 of 1 in 5 s)")), "{said}");
        assert!(gives_up.contains(" \"supervisor\" gives up on p"), "{said}");
        assert!(gives_up.ends_with(&format!("{which}more than 1 restart in 5 s)")), "{said}");
        return;
    }
    procession::run(async {
        let cache =
            SpawnOptions::new().label("cache").spawn(async { exit(Exit::failed("no room")) });
        while !cache.is_finished() {
            procession::yield_now().await;
        }
        drop::<JoinHandle<()>>(cache);
        let db = ChildSpec::new("db", |_: Context<()>| async { exit(Exit::failed("no disk")) });
        let tree = Supervisor::one_for_one().child(db.restart(Restart::Transient));
        drop(tree.try_start().await.expect("it starts").await);
    });
    std::process::exit(0);
}

#[test]
fn a_burst_is_a_few_lines_and_a_count() {
    if !is_child() {
        let begun = now();
        let said = printed("a_burst_is_a_few_lines_and_a_count");
        // The child may begin at the end of a second, and the machine may make it slow.
        let seconds = (now() - begun).as_secs() + 2;
        let lines = reports(&said);
        let counted: u64 = lines
            .iter()
            .filter_map(|line| {
                let text = line
                    .strip_prefix("procession: ")?
                    .strip_suffix(" not written in the last second")?;
                text.split(' ').next()?.parse::<u64>().ok()
            })
            .sum();
        let shown = lines.iter().filter(|line| line.ends_with(") panicked: broken")).count() as u64;
        assert_eq!(shown + counted, 1000, "{said}");
        assert!((10..=10 * seconds).contains(&shown), "{said}");
        assert!(lines.len() as u64 <= shown + seconds, "one count in each second: {said}");
        return;
    }
    let scheduler = telling(2);
    scheduler.block_on(async {
        let fail: Vec<_> = (0..1000).map(|_| spawn(async { panic_quietly("broken") })).collect();
        for fails in fail {
            let _: Result<(), _> = fails.await;
        }
        drop(scheduler.shutdown(TIMEOUT).await);
    });
    std::process::exit(0);
}

#[test]
fn a_standard_error_that_nobody_reads_holds_up_neither_workers_nor_the_shutdown() {
    let this = "a_standard_error_that_nobody_reads_holds_up_neither_workers_nor_the_shutdown";
    if !is_child() {
        let mut command = child(this);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("there are processes");
        let mut said = String::new();
        child.stdout.take().expect("it is piped").read_to_string(&mut said).expect("it is text");
        let status = child.wait().expect("it ends");
        assert!(status.success() && said.contains("all in time"), "{said}");
        return;
    }
    // Fills the pipe, and waits for its reader with the lock of standard error.
    #[expect(clippy::disallowed_methods, reason = "it never ends, so no scope can hold it")]
    drop(crate::home::thread::spawn(|| std::io::stderr().write_all(&[b'x'; 1 << 20])));
    let scheduler = telling(1);
    let patience = Duration::from_millis(100);
    let have_waited = (0..1000).filter(|_| {
        let start = now();
        let _: Result<(), _> =
            scheduler.block_on(async { spawn(async { panic_quietly("broken") }).await });
        now() - start >= patience
    });
    let have_waited = have_waited.count();
    let start = now();
    scheduler.block_on(async { drop(scheduler.shutdown(Duration::from_secs(10)).await) });
    let ended = now() - start;
    // The first caller waits for 100 ms, and no other does, unless the machine is busy. An
    // assertion could not print.
    if !(1..100).contains(&have_waited) || ended > Duration::from_secs(5) {
        say(&format!("{have_waited} failures waited, and the shutdown took {ended:?}"));
        std::process::exit(1);
    }
    say("all in time");
    std::process::exit(0);
}

/// Prints a line for the parent.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("the parent reads");
}

#[expect(clippy::disallowed_methods, reason = "standard error is beside the scheduler's clock")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_standard_error_without_a_reader_loses_lines_and_nothing_else() {
    if !is_child() {
        let mut command = child("a_standard_error_without_a_reader_loses_lines_and_nothing_else");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("there are processes");
        drop(child.stderr.take());
        // The child begins once there is no reader.
        drop(child.stdin.take());
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("all ended"), "{said}");
        return;
    }
    std::io::stdin().read_to_end(&mut Vec::new()).expect("it is closed");
    let scheduler = telling(1);
    for _ in 0..20 {
        let _: Result<(), _> = scheduler.spawn(async { panic_quietly("broken") }).join();
    }
    scheduler.block_on(async { drop(scheduler.shutdown(TIMEOUT).await) });
    say("all ended");
}

#[test]
fn hooks_silence_what_is_printed_and_their_panics_are_told() {
    if !is_child() {
        let said = printed("hooks_silence_what_is_printed_and_their_panics_are_told");
        let lines = reports(&said);
        let expected =
            "procession: the hook on_exit of the scheduler \"loud\" panicked: in the hook";
        assert_eq!(lines, [expected], "{said}");
        return;
    }
    let fail = |builder: Builder| {
        let builder = builder.worker_threads(1).reporting(Reporting::new().always());
        let scheduler = builder.build().expect("the system has threads");
        let fails = scheduler.spawn(async { panic_quietly("broken") });
        let _: Result<(), _> = fails.join();
        scheduler
    };
    let silent = fail(Scheduler::builder().on_exit(|_| {}).on_supervisor(|_| {}));
    let db = ChildSpec::new("db", |_: Context<()>| async { exit(Exit::failed("no disk")) });
    let tree = Supervisor::one_for_one().child(db.restart(Restart::Transient));
    silent.block_on(async { drop(tree.try_start().await.expect("it starts").await) });
    fail(Scheduler::builder().name("loud").on_exit(|_| panic_quietly("in the hook")));
}

/// Prints the panics of some processes, with the hook.
fn panics_with_the_hook() {
    install_panic_hook();
    install_panic_hook();
    let scheduler = enabled(Scheduler::builder().worker_threads(1));
    let options = |label: &'static str| SpawnOptions::new().on(&scheduler).label(label);
    let _: Result<(), _> = options("async").spawn(async { panic!("in a future") }).join();
    let straight = options("straight").try_start_coroutine(|_: coroutine::Context<()>| {
        coroutine::yield_now();
        panic!("in a coroutine");
    });
    let _: Result<(), _> = straight.expect("they are enabled").join();
    // The panics are reported although they reach the caller, and this is not unless asked for.
    for reporting in [Reporting::new(), Reporting::new().always()] {
        let failed = options("failed").reporting(reporting);
        let _: Result<(), _> = failed.spawn(async { exit(Exit::failed("no panic")) }).join();
    }
    crate::home::thread::scope(|scope| drop(scope.spawn(|| panic!("elsewhere")).join()));
}

#[test]
fn the_panic_hook_names_the_process_and_the_place_and_prints_nothing_twice() {
    let this = "the_panic_hook_names_the_process_and_the_place_and_prints_nothing_twice";
    if !is_child() {
        let said = printed(this);
        let [asynchronous, straight, failed] = reports(&said)[..] else { panic!("{said}") };
        let place = "panicked at crates/procession/tests/it/reports.rs:";
        assert!(asynchronous.contains(place) && asynchronous.ends_with(": in a future"), "{said}");
        assert!(straight.contains(place) && straight.ends_with(": in a coroutine"), "{said}");
        assert!(failed.ends_with(" \"failed\" failed: no panic"), "{said}");
        for text in ["in a future", "in a coroutine", "no panic", "elsewhere"] {
            assert_eq!(said.matches(text).count(), 1, "{text}: {said}");
        }
        assert!(said.contains("elsewhere") && said.matches("thread '").count() == 1, "{said}");
        return;
    }
    panics_with_the_hook();
}

#[test]
fn the_panic_hook_leaves_backtraces_to_the_hook_before_it() {
    let this = "the_panic_hook_leaves_backtraces_to_the_hook_before_it";
    if !is_child() {
        let output = child(this).env("RUST_BACKTRACE", "1").output().expect("there are processes");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches("stack backtrace:").count(), 3, "{said}");
        assert_eq!(reports(&said).len(), 3, "{said}");
        return;
    }
    panics_with_the_hook();
}

#[cfg(feature = "door")]
#[test]
fn reports_keep_backtraces_as_the_builder_or_the_environment_says() {
    let this = "reports_keep_backtraces_as_the_builder_or_the_environment_says";
    if !is_child() {
        for variable in ["0", "1"] {
            let output = child(this).env("RUST_BACKTRACE", variable).output();
            let output = output.expect("the system has processes");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    /// Panics below more calls than a report keeps.
    fn panics(depth: u32) -> u32 {
        assert!(depth > 0, "too deep");
        std::hint::black_box(panics(depth - 1) + 1)
    }
    install_panic_hook();
    let keeps = [Some(true), Some(false), None].map(|keep| {
        let builder = Scheduler::builder().worker_threads(1).on_exit(|_| {});
        let builder =
            keep.into_iter().fold(builder, procession::scheduler::Builder::panic_backtraces);
        let scheduler = builder.build().expect("the system has threads");
        let ended = scheduler.spawn(async { panics(1000) }).join();
        ended.expect_err("it panics");
        let crashes = scheduler.crashes();
        let mut addresses: Vec<_> =
            crashes[0].backtrace().iter().map(|frame| frame.address).collect();
        addresses.dedup();
        assert!(addresses.len() <= 128, "{}", addresses.len());
        !addresses.is_empty()
    });
    let by_environment = std::env::var("RUST_BACKTRACE").as_deref() == Ok("1");
    assert_eq!(keeps, [true, false, by_environment]);
}

#[test]
fn with_the_panic_hook_a_second_panic_hides_neither() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("the second");
        }
    }
    if !is_child() {
        let output = child("with_the_panic_hook_a_second_panic_hides_neither").output();
        let output = output.expect("the system has processes");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "it aborts");
        assert!(said.contains("the first") && said.contains("the second"), "{said}");
        return;
    }
    install_panic_hook();
    let scheduler = threaded(1);
    let fails = scheduler.spawn(async {
        let _fails = Fails;
        panic!("the first");
    });
    let _: Result<(), _> = fails.join();
}

#[test]
fn with_the_panic_hook_a_panic_after_the_report_is_printed() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    if !is_child() {
        let said = printed("with_the_panic_hook_a_panic_after_the_report_is_printed");
        assert_eq!(said.matches("the cause").count(), 1, "{said}");
        assert_eq!(said.matches("in a drop").count(), 1, "{said}");
        return;
    }
    install_panic_hook();
    let scheduler = threaded(1);
    // The value is dropped with the future, and not by the panic.
    let held = Fails;
    let mut polled = false;
    let fails = scheduler.spawn(std::future::poll_fn(move |_| {
        let _held = &held;
        if !std::mem::replace(&mut polled, true) {
            panic!("the cause");
        }
        std::task::Poll::Ready(())
    }));
    let _: Result<(), _> = fails.join();
}

#[test]
fn with_the_panic_hook_a_panic_of_a_destructor_that_ends_nothing_is_printed() {
    struct Fails(&'static str);
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("in {}", self.0);
        }
    }
    const TEXTS: [&str; 3] = ["a dropped future", "an output", "a detached output"];
    if !is_child() {
        let said =
            printed("with_the_panic_hook_a_panic_of_a_destructor_that_ends_nothing_is_printed");
        for text in TEXTS {
            let lines = reports(&said).iter().filter(|line| line.ends_with(text)).count();
            assert_eq!((lines, said.matches(text).count()), (1, 1), "{text}: {said}");
        }
        assert!(reports(&said).iter().all(|line| line.contains(" panicked at crates/")), "{said}");
        return;
    }
    install_panic_hook();
    let scheduler = threaded(1);
    let [future, output, detached] = TEXTS.map(Fails);
    let dropped = scheduler.spawn(async move {
        let _future = future;
        std::future::pending::<()>().await;
    });
    dropped.cancel();
    assert_eq!(dropped.join(), Err(Exit::Shutdown));
    // The handles are gone before the outputs are there.
    let gate = procession::sync::CancellationToken::new();
    let opened = gate.child_token();
    drop(scheduler.spawn(async move {
        opened.cancelled().await;
        output
    }));
    let opened = gate.child_token();
    let named = SpawnOptions::new().on(&scheduler).name("related");
    let related = named.spawn(async move {
        opened.cancelled().await;
        detached
    });
    drop(related);
    gate.cancel();
    while scheduler.snapshot().spawned != scheduler.snapshot().ended {
        crate::home::thread::yield_now();
    }
    assert!(scheduler.block_on(scheduler.shutdown(TIMEOUT)).is_empty());
}

#[test]
fn a_panic_is_reported_even_if_its_process_runs_in_the_destructor_of_a_local() {
    /// Drives a scheduler when its thread ends.
    struct Drives(Option<Scheduler>);
    impl Drop for Drives {
        fn drop(&mut self) {
            let scheduler = self.0.take().expect("it is dropped once");
            let exit = scheduler.block_on(scheduler.spawn(async { panic!("late") }));
            assert!(exit.is_err_and(|exit: Exit| exit.is_panic()));
        }
    }
    thread_local! {
        static DRIVES: std::cell::RefCell<Drives> =
            const { std::cell::RefCell::new(Drives(None)) };
    }
    if !is_child() {
        let said =
            printed("a_panic_is_reported_even_if_its_process_runs_in_the_destructor_of_a_local");
        assert!(said.matches("late").count() >= 1, "{said}");
        assert_eq!(reports(&said).len(), 2, "{said}");
        return;
    }
    install_panic_hook();
    #[expect(
        clippy::disallowed_methods,
        reason = "a scope does not wait for the locals of a thread"
    )]
    let thread = crate::home::thread::spawn(|| {
        let builder = Scheduler::builder().worker_threads(1).callers_drive();
        let builder = builder.reporting(Reporting::new().always());
        let scheduler = builder.build().expect("it starts no thread");
        // The local of the runtime is destroyed before the one that was used first.
        DRIVES.with_borrow_mut(|drives| drives.0 = Some(scheduler.clone()));
        let exit = scheduler.block_on(scheduler.spawn(async { panic!("early") }));
        assert!(exit.is_err_and(|exit: Exit| exit.is_panic()));
    });
    thread.join().expect("it does not panic");
}

#[test]
fn a_writer_that_was_idle_writes_again() {
    if !is_child() {
        let said = printed("a_writer_that_was_idle_writes_again");
        assert_eq!(reports(&said).len(), 2, "{said}");
        return;
    }
    let scheduler = telling(1);
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").expect("there is a /proc");
        all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("procession-repo"))
            .count()
    };
    for _ in 0..2 {
        let _: Result<(), _> = scheduler.spawn(async { panic_quietly("broken") }).join();
        let start = now();
        while threads() > 0 {
            assert!(now() - start < TIMEOUT, "the thread does not end");
            crate::home::thread::yield_now();
        }
    }
}

#[test]
fn a_link_made_too_late_reports_nothing() {
    let (scheduler, exits, _) = observed();
    scheduler.block_on(async {
        let ended = start(|_: Context<()>| async {});
        let pid = ended.pid();
        drop(ended.await);
        let links = spawn(async move {
            link(pid);
            std::future::pending::<()>().await;
        });
        assert_eq!(links.await, Err(Exit::NoProcess));
    });
    assert!(exits.lock().is_empty());
}
