//! Steps that block delay no other process.
//!
//! Method: events. A process that blocks reports that from within its section, and waits for a
//! channel that the test holds. Anything that should go on beside it then has no worker, unless
//! another thread takes the place. A failure is a hang, which `soon` reports.

use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use procession::time::run_after;
use procession::{Context, Exit, Scheduler, SpawnOptions, blocking, sleep, spawn, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::{Mutex, thread};

use crate::scene::{TIMEOUT, driven, meet, soon, soon_closed, threaded};

/// Processes that have entered a section and stay there until the gate is dropped.
struct Blocked {
    gate: Option<Sender<()>>,
    handles: Vec<procession::JoinHandle<()>>,
}

impl Blocked {
    fn enter(scheduler: &Scheduler, count: usize) -> Self {
        let (gate, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let (enters, entered) = mpsc::channel();
        let handles = (0..count)
            .map(|_| {
                let (waits, enters) = (Arc::clone(&waits), enters.clone());
                scheduler.spawn(async move {
                    blocking(|| {
                        enters.send(()).expect("the test listens");
                        waits.lock().recv().unwrap_or_default();
                    });
                })
            })
            .collect();
        (0..count).for_each(|_| soon(&entered));
        Self { gate: Some(gate), handles }
    }

    fn release(&mut self) {
        self.gate = None;
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
    here.set_read_timeout(Some(TIMEOUT)).expect("it is a socket");
    let mut bytes = [0; 4];
    (&here).read_exact(&mut bytes).expect("the echo comes soon");
    assert_eq!(&bytes, b"ping");
    echo.join().expect("it ends");
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
        assert_eq!(scheduler.snapshot().blocking_sections, (1..=2 * width as u64).sum());
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

/// Creates a scheduler that may have `threads` threads, which can all run at once.
fn narrow(threads: usize) -> Scheduler {
    Scheduler::builder()
        .worker_threads(threads)
        .max_threads(threads)
        .build()
        .expect("the system has threads")
}

/// A process in the first scheduler blocks on one in the next, and so on; the last one blocks on
/// one in the first. Returns `true` if all of them may. Whichever blocks last closes the circle.
fn wait_round(schedulers: Vec<Scheduler>, at: usize) -> bool {
    let Some(next) = schedulers.get(at + 1).cloned() else {
        let first = &schedulers[0];
        return first.try_block_on(first.spawn(async {})).is_ok();
    };
    let child = next.spawn(async move { wait_round(schedulers, at + 1) });
    next.try_block_on(child).is_ok_and(|all_may| all_may.expect("it does not panic"))
}

#[test]
fn schedulers_that_would_wait_for_one_another_for_ever_are_refused() {
    for length in 1..=4 {
        // With a second thread, the first scheduler can run the last process.
        for threads in [1, 2] {
            let first = narrow(threads);
            let rest = (1..length).map(|_| narrow(1));
            let schedulers: Vec<_> = [first.clone()].into_iter().chain(rest).collect();
            let round = first.spawn(async move { wait_round(schedulers, 0) });
            let all_may = round
                .join_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("{length} wait for one another"));
            assert_eq!(
                all_may.expect("it does not panic"),
                threads == 2,
                "{length} schedulers, {threads} threads"
            );
        }
    }
}

#[test]
fn a_wait_for_a_scheduler_with_a_thread_that_will_return_is_not_refused() {
    let (one, two) = (narrow(1), narrow(2));
    // One thread of the second scheduler blocks on something else, which the first scheduler waits
    // for. Its other thread waits for the first scheduler.
    let (release, held) = mpsc::channel::<()>();
    let (tells, told) = mpsc::channel();
    let slow = two.spawn({
        let tells = tells.clone();
        async move {
            blocking(|| {
                tells.send(()).expect("the test listens");
                held.recv().unwrap_or_default();
            });
        }
    });
    soon(&told);
    let waits = one.spawn({
        let two = two.clone();
        async move {
            tells.send(()).expect("the test listens");
            two.try_block_on(slow).is_ok()
        }
    });
    soon(&told);
    while one.snapshot().blocking_sections == 0 {
        thread::yield_now();
    }
    let asks = two.spawn({
        let one = one.clone();
        async move { one.try_block_on(one.spawn(async { 7 })).map_err(drop) }
    });
    while two.snapshot().blocking_sections < 2 {
        thread::yield_now();
    }
    drop(release);
    assert_eq!(asks.join().expect("it does not panic").map(|seven| seven.expect("it ends")), Ok(7));
    assert!(waits.join().expect("it does not panic"));
}

#[test]
fn processes_bound_to_a_worker_run_whichever_workers_have_the_permits() {
    let scheduler = threaded(2);
    let on = |worker| SpawnOptions::new().on(&scheduler).affinity(worker);
    let mut blocked = Blocked::enter(&scheduler, 2);
    // Keeps two extra workers busy for as long as this test lasts.
    let stop = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..2)
        .map(|_| {
            let stop = Arc::clone(&stop);
            scheduler.spawn(async move {
                while stop.load(SeqCst) == 0 {
                    yield_now().await;
                }
            })
        })
        .collect();
    blocked.release();
    for _ in 0..50 {
        for worker in 0..2 {
            on(worker).spawn(async { yield_now().await }).join().expect("it ends");
        }
    }
    stop.store(1, SeqCst);
    hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
    // Also if the width was lowered since: the bound processes take turns.
    scheduler.set_worker_threads(1).expect("it is in range");
    for worker in [0, 1, 1, 0] {
        on(worker).spawn(async { yield_now().await }).join().expect("it ends");
    }
}

#[test]
fn the_width_can_be_changed_a_thousand_times_under_load() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_threads(8)
        .build()
        .expect("the system has threads");
    let stop = Arc::new(AtomicUsize::new(0));
    let (gets_on, got_on) = mpsc::channel();
    let load: Vec<_> = (0..32)
        .map(|n| {
            let (stop, gets_on) = (Arc::clone(&stop), gets_on.clone());
            scheduler.spawn(async move {
                while stop.load(SeqCst) == 0 {
                    match n % 4 {
                        0 => yield_now().await,
                        1 => sleep(Duration::from_micros(50)).await,
                        2 => blocking(thread::yield_now),
                        _ => spawn(async {}).await.expect("it ends"),
                    }
                    yield_now().await;
                    // Ignored: the test has heard of this process before, and has gone on.
                    let _ = gets_on.send(n);
                }
            })
        })
        .collect();
    for turn in 0..1000_usize {
        scheduler.set_worker_threads(turn * 5 % 8 + 1).expect("it is in range");
        thread::yield_now();
    }
    for width in [1, 8, 3] {
        scheduler.set_worker_threads(width).expect("it is in range");
        assert_eq!(scheduler.worker_threads(), width);
    }
    is_served(&scheduler);
    // Each process makes progress.
    let mut waited_for: BTreeSet<_> = (0..32).collect();
    while !waited_for.is_empty() {
        waited_for.remove(&soon(&got_on));
    }
    drop(got_on);
    stop.store(1, SeqCst);
    load.into_iter().for_each(|process| process.join().expect("it ends"));
    meet(&scheduler, 3);
    let refused =
        scheduler.set_worker_threads(9).expect_err("it is more than there may be threads");
    assert_eq!(
        refused.to_string(),
        "cannot change the worker threads of a scheduler: worker_threads is 9, but must be from 1 to 8"
    );
    assert!(scheduler.set_worker_threads(0).is_err());
}

#[test]
fn no_more_steps_run_at_once_than_the_scheduler_is_wide() {
    let scheduler = threaded(2);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // There are extra threads, and every permit changes hands often.
    Blocked::enter(&scheduler, 6).release();
    let processes: Vec<_> = (0..64)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            scheduler.spawn(async move {
                for _ in 0..200 {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    running.fetch_sub(1, SeqCst);
                    yield_now().await;
                }
            })
        })
        .collect();
    processes.into_iter().for_each(|process| process.join().expect("it ends"));
    assert!(most.load(SeqCst) <= 2, "{} steps ran at once", most.load(SeqCst));
}

#[test]
fn threads_beyond_the_width_retire_and_come_back() {
    let (starts, events) = mpsc::channel();
    let (starts, stops) = (Mutex::new(starts.clone()), Mutex::new(starts));
    let name = || thread::current().name().expect("it has a name").to_owned();
    let scheduler = Scheduler::builder()
        .name("retiring")
        .worker_threads(1)
        .keep_alive(Duration::from_millis(1))
        .on_thread_start(move || starts.lock().send((name(), 1)).expect("the test listens"))
        .on_thread_stop(move || stops.lock().send((name(), -1)).expect("the test listens"))
        .build()
        .expect("the system has threads");
    assert_eq!(soon(&events), ("retiring-0".to_owned(), 1));
    let mut threads = 1;
    // On a busy machine more threads than needed may come: the system can let one wait for so long
    // that it is rescued.
    let mut until = |enough: fn(i32) -> bool| {
        while !enough(threads) {
            let (name, change) = soon(&events);
            assert!(name.starts_with("retiring-"), "{name}");
            threads += change;
        }
    };
    for _ in 0..5 {
        let mut blocked = Blocked::enter(&scheduler, 3);
        meet(&scheduler, 1);
        until(|threads| threads >= 4);
        blocked.release();
        until(|threads| threads == 1);
        is_served(&scheduler);
    }
    scheduler.block_on(scheduler.shutdown(Duration::from_secs(20)));
    drop(scheduler);
    while let Ok((_, change)) = events.recv_timeout(TIMEOUT) {
        threads += change;
    }
    assert_eq!(threads, 0);
    soon_closed(&events);
}

#[test]
fn threads_that_retire_beside_those_that_block_leave_one_to_keep_the_time() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .keep_alive(Duration::from_millis(1))
        .build()
        .expect("the system has threads");
    let (tells, told) = mpsc::channel();
    let sleeps = || {
        let tells = tells.clone();
        drop(scheduler.spawn(async move {
            sleep(Duration::from_millis(20)).await;
            tells.send(()).expect("the test listens");
        }));
    };
    // Only the driver is left, and it could retire.
    sleeps();
    let mut first = Blocked::enter(&scheduler, 1);
    soon(&told);
    // The driver retires, and the other worker, which comes back, does not know that.
    sleeps();
    let mut others = Blocked::enter(&scheduler, 2);
    first.release();
    soon(&told);
    sockets_are_served(&scheduler);
    others.release();
}

#[test]
fn hooks_that_panic_harm_nobody() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .on_thread_start(|| crate::scene::panic_quietly("at the start"))
        .on_thread_stop(|| crate::scene::panic_quietly("at the end"))
        .build()
        .expect("the system has threads");
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
}

#[test]
fn threads_run_on_the_processors_that_were_named() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("this is Linux");
    let last = (0..1024).rev().find(|&cpu| allowed.is_set(cpu)).expect("this runs somewhere");
    let scheduler = Scheduler::builder().cpus([last]).build().expect("the system has threads");
    assert_eq!(scheduler.worker_threads(), 1, "by default as wide as they are many");
    let where_to =
        scheduler.spawn(async { rustix::thread::sched_getaffinity(None).expect("this is Linux") });
    let where_to = where_to.join().expect("it ends");
    assert!(where_to.is_set(last) && where_to.count() == 1);
    let absent = (0..1024).find(|&cpu| !allowed.is_set(cpu)).expect("no machine has that many");
    let refused =
        |builder: procession::Builder| builder.build().expect_err("it is out of range").to_string();
    let text = format!(
        "cannot build a scheduler: cpus is [{absent}], and this program may use none of them"
    );
    assert_eq!(refused(Scheduler::builder().cpus([absent])), text);
    let text = "cannot build a scheduler: cpus is 1024, but must be from 0 to 1023";
    assert_eq!(refused(Scheduler::builder().cpus([0, 1024])), text);
    for threads in [1, 4097] {
        let text = format!(
            "cannot build a scheduler: max_threads is {threads}, but must be from 2 to 4096"
        );
        assert_eq!(refused(Scheduler::builder().worker_threads(2).max_threads(threads)), text);
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
    std::thread::scope(|scope| {
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
