//! Steps that block or compute without a section do not delay others for long, and are reported.
//!
//! Method: events, as in `blocked`. Anything that should run beside a stalled step has no worker
//! unless the watchdog finds one for it. A failure is a hang, which `soon` reports. The time that
//! this takes is not asserted.

use crate::home::mpsc::{self, Receiver, Sender};
use crate::home::{others_may_run, thread};
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::poll_once;
use procession::observe::{Stall, StallKind};
use procession::scheduler::Builder;
use procession::time::run_after;
use procession::{
    Context, Scheduler, SpawnOptions, blocking, checkpoint, coroutine, sleep, spawn, yield_now,
};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::{AtomicBool, AtomicUsize};

use crate::scene::{TIMEOUT, alone, meet, soon, soon_closed};
use crate::simulated::is_simulated;

/// The work of a step while it stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Blocking,
    Computing,
}

/// Steps that do not end until they are released.
struct Stalled {
    gates: Vec<Sender<()>>,
    stop: Arc<AtomicBool>,
    handles: Vec<procession::JoinHandle<()>>,
}

impl Stalled {
    fn enter(scheduler: &Scheduler, count: usize, by: By) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (enters, entered) = mpsc::channel();
        let (gates, handles) = (0..count)
            .map(|n| {
                let (gate, waits) = mpsc::channel::<()>();
                let (stop, enters) = (Arc::clone(&stop), enters.clone());
                let handle = SpawnOptions::new().on(scheduler).label(format!("stalled {n}")).spawn(
                    async move {
                        enters.send(()).expect("the test listens");
                        match by {
                            By::Blocking => waits.recv().unwrap_or_default(),
                            By::Computing => {
                                while !stop.load(SeqCst) {
                                    std::hint::spin_loop();
                                    others_may_run();
                                }
                            }
                        }
                    },
                );
                (gate, handle)
            })
            .unzip();
        (0..count).for_each(|_| soon(&entered));
        Self { gates, stop, handles }
    }

    fn release(&mut self) {
        self.gates.clear();
        self.stop.store(true, SeqCst);
        for handle in self.handles.drain(..) {
            handle.join().expect("it ends");
        }
    }
}

fn reporting(
    width: usize,
    options: impl FnOnce(Builder) -> Builder,
) -> (Scheduler, Receiver<Stall>) {
    let (tells, told) = mpsc::channel();
    let tells = Mutex::new(tells);
    let builder = alone().worker_threads(width).on_stall(move |stall| {
        tells.lock().send(stall.clone()).unwrap_or_default();
    });
    (options(builder).build().expect("the system has threads"), told)
}

#[test]
fn others_run_at_full_width_beside_up_to_twice_as_many_that_stall() {
    for by in [By::Blocking, By::Computing] {
        for width in [1, 2] {
            let scheduler =
                Scheduler::builder().worker_threads(width).build().expect("the system has threads");
            for count in 1..=2 * width {
                let mut stalled = Stalled::enter(&scheduler, count, by);
                meet(&scheduler, width);
                crate::blocked::is_served(&scheduler);
                stalled.release();
                meet(&scheduler, width);
            }
            let stalls = scheduler.snapshot().stalls;
            assert!(stalls.replaced > 0, "{by:?}, {width} wide: {stalls:?}");
        }
    }
}

#[test]
fn timers_and_messages_are_served_beside_one_that_stalls() {
    for by in [By::Blocking, By::Computing] {
        let scheduler =
            Scheduler::builder().worker_threads(1).build().expect("the system has threads");
        let (tells, told) = mpsc::channel();
        let echo = scheduler.start({
            let tells = tells.clone();
            |mut cx: Context<()>| async move {
                while cx.recv().await.is_some() {
                    sleep(Duration::from_millis(1)).await;
                    tells.send(()).expect("the test listens");
                }
            }
        });
        // The timer is in the heap of the worker that stalls.
        let armed = scheduler.spawn(async move {
            let function = run_after(Duration::from_millis(15), move || {
                tells.send(()).expect("the test listens")
            });
            drop(function.unwrap_or_else(|_| unreachable!("the limit is not reached")));
        });
        armed.join().expect("it ends");
        let mut stalled = Stalled::enter(&scheduler, 1, by);
        soon(&told);
        for _ in 0..3 {
            echo.send(()).expect("it is alive");
            soon(&told);
        }
        stalled.release();
    }
}

#[test]
fn a_timer_of_one_that_stalls_is_served_though_another_keeps_the_time_of_a_later_one() {
    for by in [None, Some(By::Blocking), Some(By::Computing)] {
        let scheduler =
            Scheduler::builder().worker_threads(2).build().expect("the system has threads");
        let far = scheduler.spawn(async { sleep(Duration::from_secs(3600)).await });
        // Whichever worker is the driver, in one of these rounds it is the step of the other one
        // that does not end.
        for worker in [0, 1, 0, 1] {
            scheduler.run_until_idle();
            let (tells, told) = mpsc::channel();
            let staller = SpawnOptions::new().on(&scheduler).affinity(worker).spawn(async move {
                let (lets_go, waits) = mpsc::channel();
                // The timer is in the heap of the worker that stalls.
                let function = run_after(Duration::from_millis(1), move || {
                    lets_go.send(()).expect("it waits");
                    tells.send(()).expect("the test listens");
                });
                drop(function.unwrap_or_else(|_| unreachable!("the limit is not reached")));
                match by {
                    None => blocking(|| waits.recv()).expect("it is let go"),
                    Some(By::Blocking) => waits.recv().expect("it is let go"),
                    Some(By::Computing) => {
                        while waits.try_recv().is_err() {
                            std::hint::spin_loop();
                            others_may_run();
                        }
                    }
                }
            });
            soon(&told);
            staller.join().expect("it ends");
        }
        assert!(!far.is_finished());
    }
}

#[test]
fn what_is_in_the_lifo_slot_of_one_that_stalls_is_taken_out() {
    for width in [1, 2] {
        let (scheduler, told) = reporting(width, |builder| builder);
        let (tells, woken) = mpsc::channel();
        let other = scheduler.start(move |mut cx: Context<()>| async move {
            cx.recv().await;
            tells.send(()).expect("the test listens");
        });
        // The process waits for its message by then.
        scheduler.run_until_idle();
        let (gate, waits) = mpsc::channel::<()>();
        let address = other.address().clone();
        let staller = scheduler.spawn(async move {
            address.send(()).expect("it is alive");
            waits.recv().unwrap_or_default();
        });
        soon(&woken);
        if width == 1 {
            let stall = soon(&told);
            assert!(stall.lifo_slot && stall.replaced);
            assert_eq!(scheduler.snapshot().stalls.lifo_slots, 1);
        }
        drop(gate);
        staller.join().expect("it ends");
        other.join().expect("it ends");
    }
}

/// Waits for ten more looks of the watchdog.
fn look_on(scheduler: &Scheduler) {
    let looks = scheduler.snapshot().stalls.looks;
    while scheduler.snapshot().stalls.looks < looks + 10 {
        thread::yield_now();
    }
}

#[test]
fn a_stall_is_reported_with_all_that_is_known_of_it() {
    for (by, kind) in [(By::Blocking, StallKind::Blocked), (By::Computing, StallKind::Computing)] {
        let (scheduler, told) =
            reporting(2, |builder| builder.stall_after(Duration::from_millis(60)));
        let mut stalled = Stalled::enter(&scheduler, 1, by);
        let pid = Some(stalled.handles[0].pid());
        let stall = soon(&told);
        assert_eq!((stall.kind, stall.pid, stall.label.as_deref()), (kind, pid, Some("stalled 0")));
        assert!(stall.location.is_some_and(|location| location.file().ends_with("stalls.rs")));
        assert!(stall.duration >= Duration::from_millis(60));
        assert!(!stall.replaced && !stall.lifo_slot, "nothing was waiting");
        assert!(stall.to_string().contains("(stalled 0), spawned at "), "{stall}");
        // Not reported twice, although the watchdog goes on looking.
        look_on(&scheduler);
        stalled.release();
        let stalls = scheduler.snapshot().stalls;
        assert_eq!((stalls.blocked + stalls.computing, stalls.replaced), (1, 0));
        drop(scheduler);
        soon_closed(&told);
    }
}

/// A coroutine that asks for a lock which another coroutine of its worker holds stops them all.
#[test]
fn a_stall_says_how_many_only_its_worker_can_run() {
    let (scheduler, told) = reporting(1, |builder| {
        // SAFETY: the coroutines hold no pointers in thread-locals.
        unsafe { builder.enable_coroutines() }
    });
    let (enters, entered) = mpsc::channel();
    let holders: Vec<_> = (0..3)
        .map(|_| {
            let enters = enters.clone();
            let holder = move |_: coroutine::Context<()>| {
                enters.send(()).expect("the test listens");
                coroutine::wait(procession::process::cancelled());
            };
            SpawnOptions::new()
                .on(&scheduler)
                .try_start_coroutine(holder)
                .expect("they are enabled")
        })
        .collect();
    (0..3).for_each(|_| soon(&entered));
    let (lets_go, held) = mpsc::channel::<()>();
    let asks = SpawnOptions::new()
        .on(&scheduler)
        .label("asks")
        .try_start_coroutine(move |_: coroutine::Context<()>| held.recv().unwrap_or_default())
        .expect("they are enabled");
    let stall = soon(&told);
    assert_eq!((stall.label.as_deref(), stall.held_up), (Some("asks"), 3));
    let text = stall.to_string();
    assert!(text.ends_with("and holds up 3 others that only this worker can run"), "{text}");
    drop(lets_go);
    asks.join().expect("it returns");
    for holder in holders {
        holder.cancel();
        holder.join().expect("it returns, since it waits for that");
    }
}

#[test]
fn reports_are_limited_and_an_observer_that_panics_harms_nobody() {
    const COUNT: usize = 30;
    let scheduler = Scheduler::builder()
        .worker_threads(COUNT)
        .on_stall(|_| crate::scene::panic_quietly("at a report"));
    let scheduler = scheduler.build().expect("the system has threads");
    let stalls = || scheduler.snapshot().stalls;
    // The stalls are all found within two looks, which may fall into two seconds. If other programs
    // keep the watchdog from running, they may fall into more. Then the next stalls are limited.
    while stalls().unreported == 0 {
        let found = || stalls().blocked + stalls().computing;
        let all = found() + COUNT as u64;
        let mut stalled = Stalled::enter(&scheduler, COUNT, By::Blocking);
        while found() < all {
            thread::yield_now();
        }
        meet(&scheduler, 1);
        stalled.release();
    }
}

#[test]
fn a_computation_with_checkpoints_yields_by_budget_and_when_it_was_replaced() {
    // By its budget: on one worker, without a watchdog, another process runs after at most 128
    // calls.
    let scheduler = crate::scene::driven();
    let (calls, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let computes = scheduler.spawn({
        let calls = Arc::clone(&calls);
        async move {
            for _ in 0..10_000 {
                calls.fetch_add(1, SeqCst);
                checkpoint().await;
            }
        }
    });
    let other = scheduler.spawn({
        let (calls, seen) = (Arc::clone(&calls), Arc::clone(&seen));
        async move {
            for _ in 0..50 {
                let before = calls.load(SeqCst);
                yield_now().await;
                seen.fetch_max(calls.load(SeqCst) - before, SeqCst);
            }
        }
    });
    other.join().expect("it ends");
    computes.join().expect("it ends");
    assert!((100..=128).contains(&seen.load(SeqCst)), "{} calls in a row", seen.load(SeqCst));
    // Replaced: the process yields at its next call, whatever its budget is. It makes no call
    // before, so the other process can only run on the worker that replaces this one.
    let (scheduler, told) = reporting(1, |builder| builder);
    let computes = scheduler.spawn(async {
        let replaced = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&replaced);
        drop(spawn(async move { replaced.store(true, SeqCst) }));
        while !seen.load(SeqCst) {
            std::hint::spin_loop();
            others_may_run();
        }
        let mut calls = 1;
        while poll_once(checkpoint()).await.is_some() {
            calls += 1;
        }
        calls
    });
    assert!(soon(&told).kind == StallKind::Computing);
    let calls = computes.join().expect("it ends");
    // While time stands still in a step, only the budget decides.
    let most = if is_simulated() { 128 } else { 1 };
    assert!(calls <= most, "{calls} calls");
}

#[test]
fn only_so_many_that_compute_are_replaced() {
    let (scheduler, told) = reporting(1, |builder| builder.max_computing(1));
    let mut first = Stalled::enter(&scheduler, 1, By::Computing);
    // It runs, so the first one was replaced. It stalls, too, and is not replaced.
    let mut second = Stalled::enter(&scheduler, 1, By::Computing);
    let (tells, waits) = mpsc::channel();
    drop(scheduler.spawn(async move { tells.send(()).expect("the test listens") }));
    let pids = [&first, &second].map(|stalled| Some(stalled.handles[0].pid()));
    assert_eq!([soon(&told), soon(&told)].map(|stall| stall.pid), pids);
    look_on(&scheduler);
    assert_eq!(scheduler.snapshot().stalls.replaced, 1);
    assert!(waits.try_recv().is_err());
    second.release();
    soon(&waits);
    first.release();
    meet(&scheduler, 1);
}

#[test]
fn without_a_watchdog_nobody_looks() {
    let (scheduler, told) = reporting(1, |builder| builder.watchdog(false));
    let mut stalled = Stalled::enter(&scheduler, 1, By::Blocking);
    let (tells, waits) = mpsc::channel();
    drop(scheduler.spawn(async move { tells.send(()).expect("the test listens") }));
    let (other, others) = reporting(1, |builder| builder);
    let mut compared = Stalled::enter(&other, 1, By::Blocking);
    soon(&others);
    assert!(waits.try_recv().is_err());
    compared.release();
    stalled.release();
    soon(&waits);
    assert_eq!(scheduler.snapshot().stalls, Default::default());
    drop(scheduler);
    soon_closed(&told);
}

#[test]
fn a_watchdog_of_an_idle_scheduler_sleeps_and_is_awake_when_needed() {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    let looks = || scheduler.snapshot().stalls.looks;
    for _ in 0..3 {
        scheduler.spawn(async { yield_now().await }).join().expect("it ends");
        // Waits until the watchdog has not looked for ten times as long as it does while anything
        // runs.
        let (_silent, silence) = mpsc::channel::<()>();
        let mut before = looks();
        while silence.recv_timeout(Duration::from_millis(250)).is_err() && looks() != before {
            before = looks();
        }
        assert!(looks() > 0);
        let mut stalled = Stalled::enter(&scheduler, 1, By::Blocking);
        meet(&scheduler, 1);
        stalled.release();
    }
}

/// Returns the processor time of this thread.
#[expect(clippy::disallowed_methods, reason = "no world has this time")]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().expect("it is positive")
}

#[test]
fn steps_of_a_program_that_was_stopped_do_not_stall() {
    // A child process stops itself, and a shell continues it. Its steps never last long.
    const CHILD: &str = "PROCESSION_TEST_STOPPED";
    if std::env::var_os(CHILD).is_some() {
        let (scheduler, told) = reporting(2, |builder| builder);
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                scheduler.spawn(async {
                    for _ in 0..40 {
                        // Each step takes half a millisecond of processor time, so that some stops
                        // hit a step.
                        let end = processor_time() + Duration::from_micros(500);
                        while processor_time() < end {
                            std::hint::spin_loop();
                        }
                        yield_now().await;
                    }
                    rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::STOP,
                    )
                    .expect("it may stop itself");
                    for _ in 0..1000 {
                        yield_now().await;
                    }
                })
            })
            .collect();
        hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
        assert_eq!(told.try_recv().map(|stall| stall.kind).ok(), None);
        return;
    }
    let me = std::env::current_exe().expect("a test knows itself");
    let mut child = std::process::Command::new(me);
    child
        .args(["--exact", "stalls::steps_of_a_program_that_was_stopped_do_not_stall"])
        .env(CHILD, "1");
    let mut child =
        child.stdout(std::process::Stdio::null()).spawn().expect("there is room for a child");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a child has a number");
    let (_silent, silence) = mpsc::channel::<()>();
    let status = loop {
        // Long enough to be a stall, if it counted. Continuing a process that is not stopped does
        // nothing.
        assert!(silence.recv_timeout(Duration::from_millis(60)).is_err());
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap_or_default();
    };
    assert!(status.success());
    drop(spawn(async {}));
}

/// The system delays the thread of the only worker that was woken; its start hook stands for that
/// delay here. New work from outside is not left to that worker.
#[test]
fn a_worker_that_is_late_is_not_relied_on() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(Some(held));
    let hold_the_first = move || {
        let held = held.lock().take();
        held.map(|held| held.recv());
    };
    let scheduler = Scheduler::builder().worker_threads(2).on_thread_start(hold_the_first).build();
    let scheduler = scheduler.expect("the system has threads");
    let (has_run, runs) = mpsc::channel();
    let moment = Duration::from_millis(1);
    let one_runs = (0..TIMEOUT.as_millis()).any(|_| {
        let has_run = has_run.clone();
        drop(scheduler.spawn(async move { has_run.send(()) }));
        runs.recv_timeout(moment).is_ok()
    });
    assert!(one_runs, "all wait for a worker that does not come");
    drop(release);
}

/// Goal: workers do not rely on other workers that the system delays. Method: the start hooks of
/// some threads stand for the system, and return at the end. A process queues others and blocks, so
/// the queued ones have no worker except the delayed ones.
#[test]
fn work_from_inside_does_not_wait_for_workers_that_are_late() {
    for width in [1, 2, 4] {
        for late in [1, 3] {
            let (release, held) = mpsc::channel::<()>();
            let held = Arc::new(Mutex::new(held));
            let started = AtomicUsize::new(0);
            let hold_some = move || {
                if (1..=late).contains(&started.fetch_add(1, SeqCst)) {
                    // Fails when the test is over.
                    held.lock().recv().unwrap_or_default();
                }
            };
            let scheduler =
                Scheduler::builder().worker_threads(width).on_thread_start(hold_some).build();
            let scheduler = scheduler.expect("the system has threads");
            let publishes = scheduler.spawn(async {
                let (has_run, runs) = mpsc::channel();
                for _ in 0..3 {
                    let has_run = has_run.clone();
                    drop(spawn(async move { has_run.send(()).unwrap_or_default() }));
                }
                blocking(|| (0..3).all(|_| runs.recv_timeout(TIMEOUT).is_ok()))
            });
            let all_ran = publishes.join().expect("it does not panic");
            let stalls = scheduler.stalls();
            assert!(
                all_ran,
                "width {width}, {late} late: all wait for a worker that does not come; {stalls:?}"
            );
            assert!(stalls.late > 0, "width {width}, {late} late: {stalls:?}");
            drop(release);
        }
    }
}

/// The environment variable of the child processes of the next test.
const STARVED: &str = "PROCESSION_TEST_WITHOUT_DESCRIPTORS";

/// Goal: stalls are found and resolved without a spare descriptor. Method: a child process lowers
/// its limit on descriptors so far that none can be opened. It does so before it has a scheduler,
/// as if there were no `/proc`, or once the watchdog is watching.
#[test]
fn a_watchdog_without_descriptors_is_not_blind() {
    const THIS: &str = "stalls::a_watchdog_without_descriptors_is_not_blind";
    if let Ok(when) = std::env::var(STARVED) {
        return without_descriptors(when == "before");
    }
    for when in ["before", "later"] {
        let mut child =
            std::process::Command::new(std::env::current_exe().expect("a test knows itself"));
        child.args(["--exact", THIS]).env(STARVED, when).env("RUST_TEST_THREADS", "1");
        let output = child.output().expect("there is room for a child");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{when}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn without_descriptors(before: bool) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let starve = || {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(0);
        setrlimit(Resource::Nofile, limit).expect("a limit may be lowered");
        std::fs::File::open("/dev/null").expect_err("there are no descriptors");
    };
    if before {
        starve();
    }
    let (scheduler, told) = reporting(1, |builder| builder);
    if !before {
        while scheduler.stalls().watched_threads == 0 {
            thread::yield_now();
        }
        starve();
    }
    for (by, kind) in [(By::Blocking, StallKind::Blocked), (By::Computing, StallKind::Computing)] {
        let mut stalled = Stalled::enter(&scheduler, 1, by);
        meet(&scheduler, 1);
        let stall = soon(&told);
        // Without a file, a thread that the system lets wait counts as blocked.
        assert!(stall.kind == kind || by == By::Computing, "{by:?}: {stall}");
        stalled.release();
    }
    let stalls = scheduler.stalls();
    assert!(stalls.replaced >= 2, "{stalls:?}");
    if before {
        assert_eq!(
            (stalls.watched_threads, stalls.guessed),
            (0, stalls.blocked + stalls.computing),
            "{stalls:?}"
        );
    } else {
        assert_eq!(stalls.watched_threads, 1, "{stalls:?}");
    }
}
