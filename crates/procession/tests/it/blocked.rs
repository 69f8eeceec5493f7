//! Steps that block delay no other process.
//!
//! Method: events. A process that blocks reports that from within its section, and waits for a
//! channel that the test holds. Anything that should go on beside it then has no worker, unless
//! another thread takes the place. A failure is a hang, which `soon` reports.

mod elsewhere;
mod refused;
mod threads;

use crate::home::Barrier;
use crate::home::mpsc::{Receiver, Sender};
use crate::home::{mpsc, thread};
use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use procession::time::run_after;
use procession::{Context, Exit, Scheduler, blocking, sleep, spawn, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use crate::scene::{TIMEOUT, driven, meet, soon, threaded};

/// Processes that have entered a section and stay there until their gates are dropped.
struct Blocked {
    gates: Vec<Sender<()>>,
    handles: Vec<procession::JoinHandle<()>>,
}

impl Blocked {
    fn enter(scheduler: &Scheduler, count: usize) -> Self {
        let (enters, entered) = mpsc::channel();
        let (gates, handles) = (0..count)
            .map(|_| {
                let (gate, waits) = mpsc::channel::<()>();
                let enters = enters.clone();
                let handle = scheduler.spawn(async move {
                    blocking(|| {
                        enters.send(()).expect("the test listens");
                        waits.recv().unwrap_or_default();
                    });
                });
                (gate, handle)
            })
            .unzip();
        (0..count).for_each(|_| soon(&entered));
        Self { gates, handles }
    }

    fn release(&mut self) {
        self.gates.clear();
        for handle in self.handles.drain(..) {
            handle.join().expect("it ends");
        }
    }
}

/// Shows that messages, timers, timers of threads, and sockets are served.
pub(crate) fn is_served(scheduler: &Scheduler) {
    sockets_are_served(scheduler);
    let (tells, told) = mpsc::channel();
    let echo = scheduler.start(|mut cx: Context<Sender<()>>| async move {
        while let Some(reply) = cx.recv().await {
            sleep(Duration::from_millis(1)).await;
            reply.send(()).expect("the test listens");
        }
    });
    for _ in 0..3 {
        echo.send(tells.clone()).expect("it is alive");
        soon(&told);
    }
    scheduler.block_on(async {
        sleep(Duration::from_millis(1)).await;
        let function =
            run_after(Duration::from_millis(1), move || tells.send(()).expect("the test listens"));
        drop(function.unwrap_or_else(|_| unreachable!("the limit is not reached")));
    });
    soon(&told);
}

fn sockets_are_served(scheduler: &Scheduler) {
    let (here, there) = UnixStream::pair().expect("the system has descriptors");
    let echo = scheduler.spawn(async move {
        let mut socket = procession::net::UnixStream::try_from(there).expect("it is a socket");
        let mut bytes = [0; 4];
        AsyncReadExt::read_exact(&mut socket, &mut bytes)
            .await
            .expect("the other writes four bytes");
        AsyncWriteExt::write_all(&mut socket, &bytes).await.expect("the other reads");
    });
    // The other end is independent of the runtime: only a poll sees what it writes.
    (&here).write_all(b"ping").expect("the other reads");
    let echoed = echo.join_timeout(TIMEOUT).expect("the echo comes soon");
    echoed.expect("it does not fail");
    let mut bytes = [0; 4];
    (&here).read_exact(&mut bytes).expect("it was written");
    assert_eq!(&bytes, b"ping");
}

#[test]
fn others_run_at_full_width_beside_up_to_twice_as_many_that_block() {
    for width in [1, 2, 4] {
        let scheduler = threaded(width);
        for blocked in 1..=2 * width {
            let mut blocked = Blocked::enter(&scheduler, blocked);
            meet(&scheduler, width);
            is_served(&scheduler);
            blocked.release();
            meet(&scheduler, width);
        }
        assert_eq!(scheduler.snapshot().blocking_sections, (1..=2 * width as u64).sum::<u64>());
    }
}

#[test]
fn a_timer_that_is_the_only_thing_left_is_served_beside_one_that_blocks() {
    for _ in 0..20 {
        let scheduler = threaded(1);
        let (tells, told) = mpsc::channel();
        let (gate, waits) = mpsc::channel::<()>();
        let blocker = scheduler.spawn(async move {
            // Both timers are in the heap of the worker that blocks next: one set before the
            // section, one within it.
            let sooner = run_after(Duration::from_micros(200), {
                let tells = tells.clone();
                move || tells.send(()).expect("the test listens")
            });
            drop(sooner.unwrap_or_else(|_| unreachable!("the limit is not reached")));
            blocking(|| {
                let later = run_after(Duration::from_millis(1), move || {
                    tells.send(()).expect("the test listens")
                });
                drop(later.unwrap_or_else(|_| unreachable!("the limit is not reached")));
                waits.recv().unwrap_or_default();
            });
        });
        soon(&told);
        soon(&told);
        drop(gate);
        blocker.join().expect("it ends");
    }
}

#[test]
fn what_a_step_woke_and_spawned_before_and_in_its_section_runs_beside_it() {
    let scheduler = threaded(1);
    let (tells, told) = mpsc::channel();
    let woken = scheduler.start(move |mut cx: Context<u32>| async move {
        while let Some(n) = cx.recv().await {
            tells.send(n).expect("the test listens");
        }
    });
    let address = woken.address().clone();
    let (gate, waits) = mpsc::channel::<()>();
    let blocker = scheduler.spawn(async move {
        // Into the LIFO slot of this worker.
        address.send(1).expect("it is alive");
        blocking(|| {
            assert_eq!(waits.recv(), Ok(()));
            address.send(2).expect("it is alive");
            drop(spawn(async move { address.send(3).expect("it is alive") }));
            waits.recv().unwrap_or_default();
        });
    });
    assert_eq!(soon(&told), 1);
    gate.send(()).expect("it waits");
    assert_eq!((soon(&told), soon(&told)), (2, 3));
    drop(gate);
    blocker.join().expect("it ends");
}

#[test]
fn results_panics_and_nested_sections_pass_through() {
    let scheduler = threaded(1);
    let borrowed = String::from("borrowed");
    assert_eq!(blocking(|| borrowed.as_str()), "borrowed", "outside of workers");
    let process = scheduler.spawn(async move {
        let two = {
            // A section may borrow what is not `Send`.
            let local = std::rc::Rc::new(1);
            blocking(|| blocking(|| *local) + blocking(|| *local))
        };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            blocking(|| crate::scene::panic_quietly("in a section"))
        }));
        assert_eq!(
            caught.expect_err("it panicked").downcast_ref::<String>().map(String::as_str),
            Some("in a section")
        );
        yield_now().await;
        two + blocking(|| borrowed.len())
    });
    assert_eq!(process.join(), Ok(10));
    let panics = scheduler.spawn(async { blocking(|| crate::scene::panic_quietly("ends it")) });
    assert!(panics.join().expect_err("it panicked").is_panic());
    meet(&scheduler, 1);
}

#[test]
fn a_burst_of_blockers_up_to_the_maximum_of_threads_only_queues() {
    const MAX: usize = 64;
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_threads(MAX)
        .build()
        .expect("the system has threads");
    let mut most = Blocked::enter(&scheduler, MAX - 1);
    is_served(&scheduler);
    let mut last = Blocked::enter(&scheduler, 1);
    // No thread is left: this process waits, and runs once one returns.
    let (tells, told) = mpsc::channel();
    drop(scheduler.spawn(async move { tells.send(()).expect("the test listens") }));
    assert_eq!(scheduler.snapshot().threads_started, MAX as u32);
    assert!(told.try_recv().is_err());
    last.release();
    soon(&told);
    is_served(&scheduler);
    most.release();
    meet(&scheduler, 2);
    assert_eq!(scheduler.snapshot().threads_started, MAX as u32, "and no more than that");
}

#[test]
fn sections_at_the_maximum_of_threads_always_go_on() {
    // There are as many threads as the width: no thread can take over, and nothing is stuck.
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_threads(2)
        .build()
        .expect("the system has threads");
    let handles: Vec<_> = (0..100)
        .map(|n| {
            scheduler.spawn(async move {
                for _ in 0..10 {
                    blocking(thread::yield_now);
                    yield_now().await;
                }
                n
            })
        })
        .collect();
    let sum: u32 = handles.into_iter().map(|handle| handle.join().expect("it ends")).sum();
    assert_eq!(sum, 99 * 100 / 2);
}

#[test]
fn to_block_on_a_future_in_a_process_lets_others_run_it() {
    let scheduler = threaded(1);
    let inner = scheduler.clone();
    let process = scheduler.spawn(async move {
        let child = spawn(async {
            yield_now().await;
            1
        });
        let joined = spawn(async { 2 }).join().expect("it ends");
        inner.block_on(child).expect("it ends") + joined
    });
    assert_eq!(process.join(), Ok(3));
}

#[test]
fn to_block_on_a_future_where_nobody_is_left_to_run_it_is_an_error() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_threads(1)
        .build()
        .expect("the system has threads");
    for scheduler in [scheduler, driven()] {
        let inner = scheduler.clone();
        let process = scheduler.spawn(async move {
            let child = spawn(async { 1 });
            let refused = inner.try_block_on(child).expect_err("nobody is left");
            let text = "cannot block on a future: all threads that the scheduler may have are blocked, and none is left to run \
                        others";
            assert_eq!(refused.to_string(), text);
            // Another scheduler has its own threads.
            let other = threaded(1);
            assert_eq!(other.try_block_on(async { 2 }).expect("it has"), 2);
            refused.into_inner().await.expect("it ends")
        });
        assert_eq!(process.join(), Ok(1));
    }
}

#[test]
fn to_wait_for_idleness_in_a_process_is_a_panic_of_it() {
    let scheduler = threaded(1);
    let inner = scheduler.clone();
    let process = scheduler.spawn(async move { blocking(|| inner.run_until_idle().len()) });
    assert!(matches!(process.join(), Err(exit) if exit.is_panic()));
}

#[test]
fn a_process_that_blocks_is_not_idle() {
    let scheduler = threaded(2);
    let (done, is_done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let process = scheduler.spawn({
        let (done, is_done) = (Arc::clone(&done), Arc::clone(&is_done));
        async move {
            blocking(|| {
                done.wait();
                is_done.store(1, SeqCst);
            });
        }
    });
    crate::home::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            scheduler.run_until_idle();
            is_done.load(SeqCst)
        });
        done.wait();
        assert_eq!(waits.join().expect("it does not panic"), 1);
    });
    process.join().expect("it ends");
}

/// The environment variable that makes a child process run as a program that cannot have many
/// threads.
const CHILD: &str = "PROCESSION_TEST_WITHOUT_THREADS";

#[test]
fn refused_threads_are_counted_and_harm_nobody() {
    if env::var_os(CHILD).is_some() {
        return without_threads();
    }
    is_right_without_threads("blocked::refused_threads_are_counted_and_harm_nobody");
}

/// Runs a test in a child process that cannot have many threads.
fn is_right_without_threads(test: &str) {
    let me = env::current_exe().expect("a test knows itself");
    // Enough address space for the test and a few stacks of 256 MiB.
    let limited = "ulimit -v 2000000 && exec \"$0\" --exact \"$1\"";
    let mut child = Command::new("sh");
    child
        .arg("-c")
        .arg(limited)
        .arg(me)
        .arg(test)
        .env(CHILD, "1")
        .env("RUST_MIN_STACK", "268435456")
        .env("RUST_TEST_THREADS", "1");
    let output = child.output().expect("there is a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A process that blocks on the next process, which does the same, until that is refused.
fn nest(scheduler: &Scheduler, depth: u32) -> u32 {
    let next = scheduler.spawn({
        let scheduler = scheduler.clone();
        async move { nest(&scheduler, depth + 1) }
    });
    scheduler.try_block_on(next).map_or(depth, |deepest| deepest.expect("it does not panic"))
}

#[test]
fn to_block_on_a_future_that_no_thread_can_be_started_for_is_an_error() {
    if env::var_os(CHILD).is_some() {
        let scheduler = threaded(1);
        let nested = scheduler.spawn({
            let scheduler = scheduler.clone();
            async move { nest(&scheduler, 0) }
        });
        let deepest = nested
            .join_timeout(TIMEOUT)
            .unwrap_or_else(|_| panic!("it waits for a thread that never starts"));
        assert!(deepest.is_ok_and(|deepest| deepest < 30));
        assert!(scheduler.snapshot().threads_refused > 0);
        return;
    }
    is_right_without_threads(
        "blocked::to_block_on_a_future_that_no_thread_can_be_started_for_is_an_error",
    );
}

fn without_threads() {
    const BLOCKERS: usize = 30;
    let scheduler = threaded(1);
    let (gate, waits) = mpsc::channel::<()>();
    let waits: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(waits));
    let (tells, told) = mpsc::channel();
    let blockers: Vec<_> = (0..BLOCKERS)
        .map(|_| {
            let (waits, tells) = (Arc::clone(&waits), tells.clone());
            scheduler.spawn(async move {
                blocking(|| {
                    tells.send(()).unwrap_or_default();
                    waits.lock().recv().unwrap_or_default();
                });
            })
        })
        .collect();
    soon(&told);
    // They cannot all be in their sections at once. Each one that returns lets another begin.
    while scheduler.snapshot().threads_refused == 0 {
        drop(scheduler.spawn(async {}));
        thread::yield_now();
    }
    for _ in 0..BLOCKERS {
        gate.send(()).expect("they wait");
    }
    blockers.into_iter().for_each(|blocker| blocker.join().expect("it ends"));
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok::<_, Exit>(1));
    assert!(scheduler.snapshot().threads_started < BLOCKERS as u32);
}
