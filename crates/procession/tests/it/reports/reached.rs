//! A failure is reported if it reaches nobody: no handle, monitor, link or supervisor. What is
//! reported, and at which level, is the program's choice.
//!
//! Method: a hook receives the reports, on the test clock. Each way to reach somebody is tried with
//! each way to fail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::Event;
use procession::observe::{
    ExitReport, ReportLevel, Reporting, SupervisorEvent, install_panic_hook,
};
use procession::process::{kill, link};
use procession::supervisor::{ChildSpec, OnceSpec, Restart, Running, Stop, Supervisor, Template};
use procession::sync::CancellationToken;
use procession::{Context, Exit, JoinHandle, Scheduler, SpawnOptions, start, yield_now};

use super::{Log, is_child, observed_with, printed, reports};
use crate::home::mpsc::channel;
use crate::scene::{TIMEOUT, panic_quietly, soon, soon_closed, threaded};

/// The ways in which the processes here fail.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Error,
    Panic,
    Exit,
}

const ALL: [Fails; 3] = [Fails::Error, Fails::Panic, Fails::Exit];

type Failed = Result<(), &'static str>;

impl Fails {
    fn now(self) -> Failed {
        match self {
            Self::Error => Err("no disk"),
            Self::Panic => panic_quietly("no disk"),
            Self::Exit => procession::process::exit(Exit::failed("no disk")),
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Panic => Exit::Panicked("no disk".into()),
            Self::Error | Self::Exit => Exit::failed("no disk"),
        }
    }

    /// Starts a process that fails once the gate is open.
    fn behind(self, gate: &CancellationToken) -> JoinHandle<Failed> {
        let gate = gate.clone();
        SpawnOptions::new().spawn_fallible(async move {
            gate.cancelled().await;
            self.now()
        })
    }
}

/// Calls `case` with each way to fail, a closed gate, and the reports so far. Returns the exits
/// that are reported in the end.
fn reported<F: Future<Output = ()>>(
    case: impl Fn(Fails, CancellationToken, Log<ExitReport>) -> F,
) -> Vec<Vec<Exit>> {
    let exits_of = |fails| {
        let (scheduler, exits, _) = observed_with(Reporting::new());
        scheduler.block_on(async {
            case(fails, CancellationToken::new(), Arc::clone(&exits)).await;
            drop(scheduler.shutdown(Duration::from_secs(1)).await);
        });
        let exits = exits.lock();
        exits.iter().map(|report| report.exit.clone()).collect()
    };
    ALL.map(exits_of).into()
}

fn each_once() -> Vec<Vec<Exit>> {
    ALL.map(|fails| vec![fails.exit()]).into()
}

fn none() -> Vec<Vec<Exit>> {
    vec![Vec::new(); ALL.len()]
}

pub(super) async fn ended<T: Send + 'static>(handle: &JoinHandle<T>) {
    while !handle.is_finished() {
        yield_now().await;
    }
}

#[test]
fn a_detached_failure_is_reported() {
    let found = reported(async |fails, gate, _| {
        let opened = gate.clone();
        let process = start(move |_: Context<()>| async move {
            opened.cancelled().await;
            fails.now()
        });
        let address = process.detach();
        gate.cancel();
        while address.is_alive() {
            yield_now().await;
        }
    });
    assert_eq!(found, each_once());
}

#[test]
fn an_awaited_failure_is_not_reported() {
    let found = reported(async |fails, gate, _| {
        // Awaited before it ends, and after.
        let (early, late) = (fails.behind(&gate), fails.behind(&gate));
        let opens = gate.clone();
        let opener = procession::spawn(async move { opens.cancel() });
        drop(early.await);
        ended(&late).await;
        drop(late.await);
        drop(opener.await);
    });
    assert_eq!(found, none());
}

#[test]
fn a_failure_whose_handle_is_dropped_later_is_reported_at_the_drop() {
    let found = reported(async |fails, gate, exits| {
        let handle = fails.behind(&gate);
        gate.cancel();
        ended(&handle).await;
        assert!(exits.lock().is_empty(), "the handle may still be awaited");
        drop(handle);
        assert_eq!(exits.lock().len(), 1);
    });
    assert_eq!(found, each_once());
}

#[test]
fn a_handle_that_was_polled_and_dropped_has_learned_nothing() {
    let found = reported(async |fails, gate, _| {
        let mut handle = fails.behind(&gate);
        let waited = procession::timeout(Duration::from_millis(1), &mut handle).await;
        assert!(waited.is_err(), "the gate is closed");
        gate.cancel();
        ended(&handle).await;
    });
    assert_eq!(found, each_once());
}

/// Starts a process that watches `watched` as `relate` says, until it learns of the end.
async fn watch<F>(relate: F)
where
    F: FnOnce(&mut Context<()>) + Send + 'static,
{
    let (tells, told) = procession::sync::oneshot::channel();
    let watcher = start(move |mut cx: Context<()>| async move {
        relate(&mut cx);
        tells.send(()).expect("the test waits");
        while !matches!(cx.recv_event().await, None | Some(Event::Down(_) | Event::Exit(_))) {}
    });
    watcher.detach();
    told.await.expect("it relates");
}

#[test]
fn a_monitored_failure_is_not_reported() {
    let found = reported(async |fails, gate, _| {
        let handle = fails.behind(&gate);
        let pid = handle.pid();
        watch(move |cx| {
            cx.monitor(pid);
        })
        .await;
        gate.cancel();
        ended(&handle).await;
    });
    assert_eq!(found, none());
}

#[test]
fn a_monitor_that_was_ended_does_not_count() {
    let found = reported(async |fails, gate, _| {
        let handle = fails.behind(&gate);
        let pid = handle.pid();
        watch(move |cx| {
            let monitor = cx.monitor(pid);
            assert!(cx.demonitor(monitor));
        })
        .await;
        gate.cancel();
        ended(&handle).await;
    });
    assert_eq!(found, each_once());
}

#[test]
fn a_monitor_whose_process_has_ended_does_not_count() {
    let found = reported(async |fails, gate, _| {
        let handle = fails.behind(&gate);
        let pid = handle.pid();
        let watcher = start(move |mut cx: Context<()>| async move {
            cx.monitor(pid);
        });
        watcher.await.expect("it returns");
        gate.cancel();
        ended(&handle).await;
    });
    assert_eq!(found, each_once());
}

#[test]
fn a_link_counts_if_it_is_trapped() {
    let linked = |traps: bool| {
        reported(move |fails, gate, _| async move {
            let handle = fails.behind(&gate);
            let pid = handle.pid();
            watch(move |cx| {
                cx.trap_exits(traps);
                link(pid);
            })
            .await;
            gate.cancel();
            ended(&handle).await;
        })
    };
    assert_eq!(linked(true), none());
    assert_eq!(linked(false), each_once());
}

#[test]
fn what_is_asked_for_is_reported_although_it_reaches_somebody() {
    let found = reported(async |fails, gate, _| {
        let asked = SpawnOptions::new().reporting(Reporting::new().always());
        let opened = gate.clone();
        let handle = asked.spawn_fallible(async move {
            opened.cancelled().await;
            fails.now()
        });
        let pid = handle.pid();
        watch(move |cx| {
            cx.monitor(pid);
        })
        .await;
        gate.cancel();
        drop(handle.await);
    });
    assert_eq!(found, each_once());
}

/// Starts a supervisor of a child that fails in its first step after the gate is open.
async fn supervised(fails: Fails, gate: &CancellationToken, restart: Restart) -> Running {
    let gate = gate.clone();
    let child = ChildSpec::new("child", move |_: Context<()>| {
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            fails.now()
        }
    });
    let child = child.label("the child").restart(restart).stop(Stop::Wait);
    Supervisor::one_for_one().child(child).try_start().await.expect("it starts")
}

#[test]
fn a_failure_is_in_the_report_of_the_supervisor_that_restarts_the_child() {
    for fails in ALL {
        let (scheduler, exits, others) = observed_with(Reporting::new());
        scheduler.block_on(async {
            let gate = CancellationToken::new();
            let tree = supervised(fails, &gate, Restart::Permanent).await;
            gate.cancel();
            assert!(matches!(tree.await, Exit::GaveUp(_)));
        });
        assert_eq!(exits.lock().len(), 0, "{fails:?}");
        let others = others.lock();
        let [restarts, gives_up] = &others[..] else { panic!("{others:?}") };
        assert!(matches!(restarts.event, SupervisorEvent::Restarts { .. }));
        assert!(matches!(gives_up.event, SupervisorEvent::GaveUp { .. }));
        for report in [restarts, gives_up] {
            assert_eq!(
                (report.level, report.child.as_deref()),
                (ReportLevel::Error, Some("child"))
            );
            assert!(report.to_string().contains(" \"the child\", which "), "{report}");
        }
    }
}

#[test]
fn a_failure_that_the_supervisor_does_nothing_about_is_reported() {
    let temporary = reported(async |fails, gate, _| {
        let tree = supervised(fails, &gate, Restart::Temporary).await;
        gate.cancel();
        while tree.count().await.expect("it runs").running > 0 {}
    });
    assert_eq!(temporary, each_once());
    let stopped = reported(async |fails, gate, _| {
        // The child fails because it is asked to end, or before its turn.
        let child = ChildSpec::new("child", move |_: Context<()>| async move {
            procession::process::cancelled().await;
            fails.now()
        });
        let tree = Supervisor::one_for_one().child(child).try_start().await.expect("it starts");
        tree.cancel();
        assert_eq!(tree.await, Exit::Shutdown);
        drop(gate);
    });
    assert_eq!(stopped, each_once());
}

#[test]
fn a_failure_that_the_supervisor_never_learns_of_is_reported() {
    let found = reported(async |fails, gate, _| {
        let tree = supervised(fails, &gate, Restart::Permanent).await;
        let which = tree.which().await.expect("it runs");
        let child = which[0].status.pid().expect("it runs");
        // The supervisor is terminated before it runs again.
        gate.cancel();
        while procession::process::cancel(child) {
            kill(tree.pid());
            yield_now().await;
        }
        drop(tree.await);
    });
    for (found, fails) in found.into_iter().zip(ALL) {
        // The child may be ended by its link before it fails.
        assert!(found.is_empty() || found == [fails.exit()], "{found:?}");
    }
}

#[test]
fn a_failed_start_is_reported_if_its_caller_has_gone() {
    let (scheduler, _, others) = observed_with(Reporting::new());
    scheduler.block_on(async {
        let fails = || {
            ChildSpec::with_init("disk", |_: Context<()>, started| async move {
                yield_now().await;
                started.fail("no such device");
            })
        };
        Supervisor::one_for_one().child(fails()).try_start().await.expect_err("there is no disk");
        let tree = Supervisor::dynamic().try_start().await.expect("it has no children");
        tree.add_child(fails()).await.expect_err("there is no disk");
        assert!(others.lock().is_empty());

        let mut start = Box::pin(tree.add_child(fails()));
        let abandoned = procession::timeout(Duration::ZERO, &mut start).await;
        assert!(abandoned.is_err(), "it takes some steps");
        drop(start);
        while tree.count().await.expect("it runs").children > 0 {}
    });
    let lines: Vec<_> = others.lock().iter().map(ToString::to_string).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        line.contains(" cannot start ") && line.ends_with("\"disk\": no such device"),
        "{line}"
    );
}

/// Returns the levels of the reports of an error, a panic and a reset, in this order.
fn levels(reporting: Reporting) -> [Option<ReportLevel>; 3] {
    let panics: fn() -> io::Result<()> = || panic_quietly("out of order");
    let fails: fn() -> io::Result<()> = || Err(io::Error::other("no disk"));
    let reset: fn() -> io::Result<()> = || Err(io::ErrorKind::ConnectionReset.into());
    [fails, panics, reset].map(|end| {
        let (scheduler, exits, _) = observed_with(Reporting::new());
        scheduler.block_on(async {
            let options = SpawnOptions::new().reporting(reporting);
            let handle = options.spawn_fallible(async move { end() });
            ended(&handle).await;
        });
        let exits = exits.lock();
        assert!(exits.len() <= 1, "{exits:?}");
        exits.first().map(|report| report.level)
    })
}

#[test]
fn a_program_chooses_what_is_reported_and_at_which_level() {
    use ReportLevel::{Debug, Error, Info, Warn};
    let new = Reporting::new();
    assert_eq!(levels(new), [Some(Error), Some(Error), Some(Debug)]);
    assert_eq!(levels(new.failures(None)), [None, Some(Error), Some(Debug)]);
    assert_eq!(levels(new.failures(Warn).disconnects(Info)), [Some(Warn), Some(Error), Some(Info)]);
    assert_eq!(levels(new.panics(Info).disconnects(None)), [Some(Error), Some(Info), None]);
    assert_eq!(levels(Reporting::nothing()), [None; 3]);
    assert_eq!(levels(Reporting::nothing().always()), [None; 3]);
}

#[test]
fn the_children_of_a_supervisor_have_the_choice_of_their_description() {
    let (scheduler, exits, others) = observed_with(Reporting::nothing());
    scheduler.block_on(async {
        let quiet = Reporting::new().failures(ReportLevel::Info);
        let child = ChildSpec::new("child", |_: Context<()>| async { Err::<(), _>("child") });
        let child = child.reporting(quiet).restart(Restart::Transient);
        let tree = Supervisor::one_for_one().child(child).try_start().await.expect("it starts");
        assert!(matches!(tree.await, Exit::GaveUp(_)));

        let tree = Supervisor::dynamic().try_start().await.expect("it has no children");
        let template =
            Template::new(|_: Context<()>, text: &'static str| async move { Err::<(), _>(text) });
        let noted = template.clone().reporting(quiet);
        tree.add_another(&noted, "template").await.expect("it starts");
        tree.add_another(&template, "the scheduler's choice").await.expect("it starts");
        let once = OnceSpec::new(|_: Context<()>| async { Err::<(), _>("once") });
        tree.add_once(once.reporting(quiet)).await.expect("it starts");
        while tree.count().await.expect("it runs").children > 0 {}
    });
    let mut texts: Vec<_> = exits.lock().iter().map(|report| report.exit.to_string()).collect();
    texts.sort();
    assert_eq!(texts, ["the process failed: once", "the process failed: template"]);
    assert!(exits.lock().iter().all(|report| report.level == ReportLevel::Info));
    let levels: Vec<_> = others.lock().iter().map(|report| report.level).collect();
    assert_eq!(levels, [ReportLevel::Info, ReportLevel::Error], "a restart, and the give-up");
}

/// Goal: whichever of the end and the drop of the handle is first, a failure is reported once.
#[test]
fn a_handle_that_is_dropped_at_the_end_is_reported_once() {
    const FAILURES: usize = 500;
    let (tells, told) = channel();
    let builder = Scheduler::builder().worker_threads(2);
    let builder = builder.on_exit(move |report| tells.send(report.pid).expect("the test listens"));
    let scheduler = builder.build().expect("the system has threads");
    let spawn = |_| {
        let handle =
            scheduler.spawn(async { procession::process::exit::<Exit>(Exit::failed("no disk")) });
        handle.pid()
    };
    let mut spawned: Vec<_> = (0..FAILURES).map(spawn).collect();
    let mut reported: Vec<_> = (0..FAILURES).map(|_| soon(&told)).collect();
    spawned.sort();
    reported.sort();
    assert_eq!(reported, spawned);
    drop(scheduler);
    soon_closed(&told);
}

#[test]
fn with_the_panic_hook_a_panic_that_reaches_somebody_is_one_line_with_its_place() {
    let this =
        "reached::with_the_panic_hook_a_panic_that_reaches_somebody_is_one_line_with_its_place";
    if !is_child() {
        let said = printed(this);
        let place = "panicked at crates/procession/tests/it/reports/reached.rs:";
        for text in ["awaited", "supervised"] {
            let lines: Vec<_> = reports(&said).into_iter().filter(|l| l.contains(text)).collect();
            let [line] = lines[..] else { panic!("{said}") };
            assert!(line.contains(place), "{said}");
        }
        assert_eq!(said.matches("thread '").count(), 0, "{said}");
        assert!(!said.contains("no disk") && !said.contains("connection reset"), "{said}");
        return;
    }
    install_panic_hook();
    let scheduler = threaded(1);
    scheduler.block_on(async {
        let panics: JoinHandle<()> = procession::spawn(async { panic!("awaited") });
        panics.await.expect_err("it panics");
        let child = ChildSpec::new("child", |_: Context<()>| async { panic!("supervised") });
        let child = child.restart(Restart::Transient);
        let tree = Supervisor::one_for_one().intensity(0, TIMEOUT).child(child);
        let exit = tree.try_start().await.expect("it starts").await;
        assert!(matches!(exit, Exit::GaveUp(_)));
        // This reaches the caller, and the other one is below what is printed.
        drop(SpawnOptions::new().spawn_fallible(async { Err::<(), _>("no disk") }).await);
        let reset = SpawnOptions::new().spawn_fallible(async {
            Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionReset))
        });
        ended(&reset).await;
    });
}
