//! Bounds beside workers that are replaced, or never idle.

use crate::home::{mpsc, thread};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use procession::time::Instant;
use procession::{Address, Context, Scheduler, sleep, spawn, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::{MS, Program, STEPS};
use crate::scene::{soon, threaded};

/// Starts a process that yields until `over` is set. Returns after its first turn.
fn yields_until(
    over: &Arc<AtomicBool>,
    tells: &mpsc::Sender<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let (over, tells) = (Arc::clone(over), tells.clone());
    async move {
        tells.send(()).expect("the test waits");
        while !over.load(Relaxed) {
            yield_now().await;
        }
    }
}

/// Starts a process that reports when a message has come.
fn tells_of_message(scheduler: &Scheduler, tells: &mpsc::Sender<()>) -> Address<()> {
    let tells = tells.clone();
    let process = scheduler.start(move |mut cx: Context<()>| async move {
        cx.recv().await.expect("it is not cancelled");
        tells.send(()).expect("the test waits");
    });
    process.into_parts().0
}

#[test]
fn what_a_replaced_worker_wakes_and_leaves_behind_runs_beside_a_hog() {
    let scheduler = threaded(1);
    let over = Arc::new(AtomicBool::new(false));
    let ((begins, begun), (tells, told)) = (mpsc::channel(), mpsc::channel());
    let receivers: Vec<_> = (0..8).map(|_| tells_of_message(&scheduler, &tells)).collect();
    let hog = yields_until(&over, &begins);
    let blocks = scheduler.spawn(async move {
        drop(spawn(hog));
        // It runs once the watchdog has replaced this worker, and holds the only permit from then
        // on.
        begun.recv().expect("the hog tells");
        for receiver in &receivers {
            receiver.send(()).expect("it waits");
        }
    });
    (0..8).for_each(|_| soon(&told));
    over.store(true, Relaxed);
    blocks.join().expect("it ends");
}

#[test]
fn what_is_queued_behind_a_blocking_section_runs_beside_a_hog() {
    let scheduler = threaded(1);
    let over = Arc::new(AtomicBool::new(false));
    let ((begins, begun), (tells, told)) = (mpsc::channel(), mpsc::channel());
    let receivers: Vec<_> = (0..8).map(|_| tells_of_message(&scheduler, &tells)).collect();
    let hog = yields_until(&over, &begins);
    let hog = scheduler.start(|mut cx: Context<()>| async move {
        cx.recv().await.expect("it is not cancelled");
        hog.await;
    });
    let hog = hog.into_parts().0;
    let (leaves, left) = mpsc::channel::<()>();
    let blocks = scheduler.spawn(async move {
        // The hog is the oldest that waits, so another worker takes it first, with half of the
        // rest.
        hog.send(()).expect("it waits");
        for receiver in &receivers {
            receiver.send(()).expect("it waits");
        }
        procession::blocking(|| {
            begun.recv().expect("the hog tells");
            left.recv().expect("the test tells");
        });
    });
    (0..8).for_each(|_| soon(&told));
    over.store(true, Relaxed);
    leaves.send(()).expect("it waits");
    blocks.join().expect("it ends");
}

/// Starts processes that yield until `over` is set. Each reports once when it has run on a thread
/// other than `home`.
fn yield_away_from(
    home: thread::ThreadId,
    count: usize,
    over: &Arc<AtomicBool>,
    tells: &mpsc::Sender<usize>,
) {
    for who in 0..count {
        let (over, tells) = (Arc::clone(over), tells.clone());
        drop(spawn(async move {
            let mut told = false;
            while !over.load(Relaxed) {
                if thread::current().id() != home && !told {
                    told = true;
                    tells.send(who).expect("the test listens");
                }
                yield_now().await;
            }
        }));
    }
}

#[test]
fn what_a_caller_leaves_in_its_seat_has_turns_beside_a_worker_that_is_busy() {
    const PROCESSES: usize = 10;
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    let (over, (tells, told)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let home = thread::current().id();
    scheduler.block_on(async {
        yield_away_from(home, PROCESSES, &over, &tells);
        // Until the other worker has some of them, and the caller has others.
        while told.try_recv().is_err() {
            yield_now().await;
        }
    });
    // Each process reports once, and the first report was taken above.
    let seen: BTreeSet<_> = (1..PROCESSES).map(|_| soon(&told)).collect();
    assert_eq!(seen.len(), PROCESSES - 1);
    over.store(true, Relaxed);
    scheduler.block_on(async {});
    scheduler.run_until_idle();
}

/// Goal: the timers of a worker without a permit fire in time, although the only other worker is
/// never idle.
#[test]
fn a_timer_of_a_worker_in_a_blocking_section_is_served_in_time() {
    // The first two step durations do not count as slow.
    for step in [1, 10].map(Duration::from_micros).into_iter().chain(STEPS) {
        let builder = Scheduler::builder().worker_threads(1).max_threads(2).test_clock();
        let program = Program::on(builder.build().expect("it starts no thread yet"));
        let (this, (begins, begun)) = (program.clone(), mpsc::channel());
        program.run(async move {
            let (wakes, woken) = mpsc::channel();
            let that = this.clone();
            drop(spawn(async move {
                let due = Instant::now() + 100 * MS;
                sleep(100 * MS).await;
                that.note_delay(due);
                wakes.send(()).expect("it is waited for");
            }));
            // The process sets its timer on this worker.
            yield_now().await;
            let hog = this.hog(0, step);
            drop(spawn(async move {
                begins.send(()).expect("it is waited for");
                hog.await;
            }));
            procession::blocking(|| {
                // Another worker runs the hog from now on.
                soon(&begun);
                soon(&woken);
            });
        });
        let longest = *program.longest.lock();
        assert!(longest <= 2 * step + MS, "beside steps of {step:?}: {longest:?}");
    }
}
