//! Processes that are coroutines.

mod callers;
mod crash;
mod endings;
mod foreign;
mod placement;
mod poll;
mod sockets;
mod stacks;
mod waits;

use crate::home::mpsc;
use crate::home::thread::ThreadId;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession::coroutine::{self, Wait, wait};
use procession::process::Outcome;
use procession::scheduler::Builder;
use procession::sync::channel;
use procession::time::Instant;
use procession::{Exit, Reply, Scheduler, SpawnOptions, spawn, yield_now};

use crate::scene::{assert_conserved, panic_quietly, soon};

fn enabled(builder: Builder) -> Scheduler {
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    unsafe { builder.enable_coroutines() }.build().expect("the system has threads and memory")
}

fn driven() -> Scheduler {
    enabled(Scheduler::builder().worker_threads(1).test_clock())
}

fn threaded(width: usize) -> Scheduler {
    enabled(Scheduler::builder().worker_threads(width))
}

/// Starts a coroutine that receives nothing.
#[track_caller]
fn coroutine<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> procession::Child<(), T> {
    SpawnOptions::new().on(scheduler).try_start_coroutine(function).expect("coroutines are enabled")
}

fn this_thread() -> ThreadId {
    crate::home::thread::current().id()
}

/// Reports its drop.
struct Noted(mpsc::Sender<()>);

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Goal: the thread of a coroutine that drives another scheduler, or is in a blocking section,
/// belongs to that until it is over. Method: the coroutine waits there, in blocking style, while
/// another process of its own scheduler runs.
#[test]
fn a_coroutine_is_not_suspended_while_it_drives_another_scheduler_or_in_a_section() {
    let scheduler = threaded(1);
    for nested in [true, false] {
        let (begun, begins) = mpsc::channel();
        let (sends, received) = channel::bounded::<u32>(1);
        let waits = move || {
            begun.send(()).expect("the test listens");
            (received.recv().wait(), coroutine::may_suspend())
        };
        let child = coroutine(&scheduler, move |_| {
            let waited = if nested {
                let inner = Scheduler::builder()
                    .worker_threads(1)
                    .callers_drive()
                    .build()
                    .expect("it starts no thread");
                inner.block_on(async { waits() })
            } else {
                procession::blocking(waits)
            };
            // The coroutine is current again.
            (waited, coroutine::may_suspend())
        });
        soon(&begins);
        let pid = scheduler
            .spawn(async { procession::process::current_pid() })
            .join()
            .expect("it does not panic");
        assert_eq!(pid.map(|pid| pid.scheduler()), Some(child.pid().scheduler()));
        sends.try_send(7).expect("there is room");
        assert_eq!(child.join(), Ok(((Some(7), false), true)));
    }
}

#[test]
fn what_a_coroutine_drives_runs_outside_of_it() {
    static OWN: coroutine::Local<Cell<u32>> = coroutine::Local::new(|| Cell::new(0));
    let scheduler = threaded(1);
    let ended = coroutine(&scheduler, |_| {
        OWN.with(|own| own.set(1));
        let inner = enabled(Scheduler::builder().worker_threads(1).callers_drive());
        let process = inner.spawn(async { (coroutine::is_coroutine(), OWN.with(Cell::get)) });
        let theirs = coroutine(&inner, |_| {
            coroutine::yield_now();
            OWN.with(|own| own.replace(2))
        });
        let future =
            async { (coroutine::is_coroutine(), coroutine::may_suspend(), OWN.with(Cell::get)) };
        let driven = inner.block_on(async { (future.await, process.await, theirs.await) });
        (driven, OWN.with(Cell::get), coroutine::may_suspend())
    });
    assert_eq!(ended.join(), Ok((((true, false, 1), Ok((false, 0)), Ok(0)), 1, true)));
}

#[test]
fn a_coroutine_that_wakes_itself_goes_on() {
    let scheduler = driven();
    let (told, tells) = mpsc::channel();
    let process = SpawnOptions::new().on(&scheduler).try_start_coroutine(
        move |mut cx: coroutine::Context<u32>| {
            for _ in 0..3 {
                let mut woken = false;
                wait(poll_fn(|task| {
                    if std::mem::replace(&mut woken, true) {
                        return Poll::Ready(());
                    }
                    let waker: Waker = task.waker().clone();
                    waker.wake();
                    Poll::Pending
                }));
            }
            told.send(()).expect("the test listens");
            cx.recv()
        },
    );
    let process = process.expect("coroutines are enabled");
    scheduler.run_until_idle();
    soon(&tells);
    process.send(7).expect("it waits");
    assert_eq!(process.join(), Ok(Some(7)));
}

#[test]
fn a_coroutine_is_a_process_in_blocking_style() {
    let scheduler = driven();
    let hour = Duration::from_secs(3600);
    let seen = scheduler.block_on(async {
        let adds = SpawnOptions::new()
            .try_start_coroutine(|mut cx: coroutine::Context<Reply<u32>>| {
                let mut calls = 0;
                while let Some(reply) = cx.recv() {
                    calls += 1;
                    reply.send(calls);
                }
                calls
            })
            .expect("coroutines are enabled");
        let address = adds.address().clone();
        let asks = SpawnOptions::new()
            .try_start_coroutine(move |mut cx: coroutine::Context<&'static str>| {
                assert_eq!(procession::process::current_pid(), Some(cx.pid()));
                let begun = Instant::now();
                coroutine::sleep(Duration::from_secs(5));
                assert_eq!(Instant::now() - begun, Duration::from_secs(5));
                assert!(cx.recv_timeout(Duration::from_secs(1)).is_err());
                let child = spawn(async { 7 });
                let own = cx.address();
                drop(SpawnOptions::new().try_start_coroutine(move |_: coroutine::Context<()>| {
                    coroutine::yield_now();
                    own.send("other").and_then(|()| own.send("wanted"))
                }));
                let wanted = cx.recv_matching(|text| *text == "wanted");
                let other = cx.recv();
                let calls = wait(address.call(|reply| reply, Duration::from_secs(1)));
                (wait(child), wanted, other, calls.ok())
            })
            .expect("coroutines are enabled");
        assert!(asks.address().is_alive());
        let asked = asks.await;
        adds.cancel();
        (asked, adds.await, procession::timeout(hour, yield_now()).await)
    });
    assert_eq!(seen.0, Ok((Ok(7), Some("wanted"), Some("other"), Some(1))));
    assert_eq!(seen.1, Ok(1), "its receive ended, so it did");
    assert_conserved(&scheduler);
    assert!(scheduler.snapshot().processes.is_empty());
}

#[test]
fn every_way_to_end_has_its_exit() {
    for scheduler in [driven(), threaded(2)] {
        let failed = coroutine(&scheduler, |_| panic_quietly("why")).join();
        let failed: Result<(), _> = failed;
        assert_eq!(failed, Err(Exit::Panicked("why".into())));
        let after: Result<(), _> = coroutine(&scheduler, |_| {
            coroutine::yield_now();
            procession::process::exit(Exit::failed("so"))
        })
        .join();
        assert_eq!(after, Err(Exit::failed("so")));
        assert_eq!(
            coroutine(&scheduler, |_| vec![1; 10_000]).join().map(|result| result.len()),
            Ok(10_000)
        );
        assert_conserved(&scheduler);
    }
}

#[test]
fn without_the_promise_a_coroutine_is_refused_and_comes_back() {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    let Err(error) =
        SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| 7)
    else {
        panic!("it is not enabled")
    };
    assert!(error.is_without_coroutines());
    assert_eq!(
        error.to_string(),
        "cannot start a process: it is a coroutine, and its scheduler was built without Builder::enable_coroutines"
    );
    let _function = error.into_inner();
    assert_conserved(&scheduler);
}

#[test]
fn the_snapshot_shows_coroutines_and_what_they_wait_for() {
    let scheduler = driven();
    let waits = coroutine(&scheduler, |_| coroutine::suspend(None));
    scheduler.run_until_idle();
    let snapshot = scheduler.snapshot();
    assert_eq!(
        (snapshot.processes[0].kind, snapshot.processes[0].waiting.for_token()),
        ("coroutine", true)
    );
    waits.cancel();
    assert_eq!(waits.join(), Err(Exit::Shutdown));
}

#[test]
fn outside_of_coroutines_the_functions_do_what_comes_nearest() {
    assert!(!coroutine::is_coroutine() && !coroutine::may_suspend());
    coroutine::yield_now();
    coroutine::sleep(Duration::from_nanos(1));
    assert_eq!(
        (coroutine::no_suspend(|| 1), coroutine::shield(|| 2), coroutine::wait(async { 3 })),
        (1, 2, 3)
    );
    let scheduler = threaded(2);
    // In an async process they block its worker.
    let blocks = scheduler.spawn(async {
        coroutine::sleep(Duration::from_nanos(1));
        let mut receives = pin!(async { coroutine::is_coroutine() });
        receives.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
    });
    assert_eq!(blocks.join(), Ok(Poll::Ready(false)));
}
