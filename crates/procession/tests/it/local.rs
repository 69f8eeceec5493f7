//! Local processes: their futures are not `Send`, and are polled and dropped on one thread.

use crate::home::mpsc;
use crate::home::thread::ThreadId;
use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use procession::observe::ProcessState;
use procession::sync::channel;
use procession::{Context, Exit, JoinHandle, Reply, Scheduler, SpawnOptions, spawn};

use crate::scene::{
    SpreadBegins, assert_conserved, driven, panic_quietly, soon, threaded, unwatched,
};

fn this_thread() -> ThreadId {
    crate::home::thread::current().id()
}

/// One worker, which is the thread that calls, and the real clock.
fn driven_by_callers() -> Scheduler {
    Scheduler::builder().worker_threads(1).callers_drive().build().expect("it starts no thread")
}

/// A value that stays on its thread, and reports whether it is dropped there.
struct Settled {
    thread: ThreadId,
    polls: Rc<Cell<u32>>,
    dropped: mpsc::Sender<bool>,
}

impl Settled {
    fn new(dropped: &mpsc::Sender<bool>) -> Self {
        Self { thread: this_thread(), polls: Rc::default(), dropped: dropped.clone() }
    }

    fn polled(&self) {
        assert_eq!(this_thread(), self.thread, "it has moved");
        self.polls.set(self.polls.get() + 1);
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        let _ = self.dropped.send(this_thread() == self.thread);
    }
}

/// Starts a local process that holds such a value and waits forever.
fn waits(scheduler: &Scheduler) -> (JoinHandle<()>, mpsc::Receiver<bool>) {
    let (dropped, drops) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    let options = SpawnOptions::new().on(scheduler);
    let handle = options.spawn_local(move || {
        let settled = Settled::new(&dropped);
        async move {
            settled.polled();
            begun.send(()).expect("the test listens");
            pending::<()>().await;
            settled.polled();
        }
    });
    scheduler.run_until_idle();
    soon(&begins);
    (handle, drops)
}

#[test]
fn a_local_process_is_suspended_resumed_and_ended_on_its_thread() {
    let scheduler = threaded(3);
    let (handle, drops) = waits(&scheduler);
    for _ in 0..50 {
        scheduler.suspend(handle.pid()).expect("it lives");
        scheduler.run_until_idle();
        assert!(scheduler.resume(handle.pid()));
    }
    scheduler.suspend(handle.pid()).expect("it lives");
    scheduler.run_until_idle();
    assert!(procession::process::kill(handle.pid()));
    assert!(soon(&drops), "it is dropped on its thread");
    assert_eq!(handle.join(), Err(Exit::Killed));
}

/// Goal: a future never moves, whatever wakes its process. Method: other workers, timers and
/// channels wake many of them, on three workers that have other work to steal.
#[test]
fn a_local_process_stays_on_the_thread_that_began_it() {
    let scheduler = threaded(3);
    let (dropped, drops) = mpsc::channel();
    let (sender, receiver) = channel::bounded(2);
    let sends = scheduler.spawn(async move {
        for n in 0..30 * 10_u32 {
            sender.send(n).await.expect("they receive");
        }
    });
    let locals: Vec<_> = (0..30)
        .map(|_| {
            let (receiver, dropped) = (receiver.clone(), dropped.clone());
            SpawnOptions::new().on(&scheduler).spawn_local(move || {
                let settled = Settled::new(&dropped);
                async move {
                    for round in 0..40 {
                        match round % 4 {
                            0 => procession::yield_now().await,
                            1 => procession::sleep(Duration::from_nanos(1)).await,
                            2 => spawn(async {}).await.expect("it does not panic"),
                            _ => assert!(receiver.recv().await.is_some()),
                        }
                        settled.polled();
                    }
                    settled.polls.get()
                }
            })
        })
        .collect();
    for local in locals {
        assert_eq!(local.join(), Ok(40));
    }
    assert_eq!(sends.join(), Ok(()));
    drop(dropped);
    let ends: Vec<_> = drops.iter().collect();
    assert_eq!(ends, [true; 30], "each is dropped once, on its thread");
    assert_conserved(&scheduler);
}

#[test]
fn a_local_process_with_a_mailbox_answers_calls() {
    let scheduler = driven();
    let counter = SpawnOptions::new().on(&scheduler).start_local(|mut cx: Context<Reply<u32>>| {
        let count = Rc::new(Cell::new(0));
        async move {
            while let Some(reply) = cx.recv().await {
                count.set(count.get() + 1);
                reply.send(count.get());
            }
            Err::<(), _>(Exit::failed("closed"))
        }
    });
    let call = async || counter.call(|reply| reply, Duration::from_secs(1)).await.ok();
    assert_eq!(scheduler.block_on(async { (call().await, call().await) }), (Some(1), Some(2)));
    let row = scheduler.process(counter.pid()).expect("it waits");
    assert_eq!((row.kind, row.state, row.steps), ("local", ProcessState::Idle, 2));
    let watcher = counter.pid();
    let watches = scheduler.start(move |mut cx: Context<()>| async move {
        let monitor = cx.monitor(watcher);
        cx.down(monitor).await.map(|down| down.exit)
    });
    scheduler.run_until_idle();
    counter.cancel();
    assert_eq!(counter.join(), Ok(Err(Exit::failed("closed"))));
    assert_eq!(watches.join(), Ok(Some(Exit::failed("closed"))), "its output is an outcome");
}

#[test]
fn every_end_drops_the_future_on_its_thread() {
    for scheduler in [driven(), threaded(2)] {
        let (cancelled, drops) = waits(&scheduler);
        cancelled.cancel();
        assert_eq!(cancelled.join(), Err(Exit::Shutdown));
        assert!(soon(&drops));

        let (killed, drops) = waits(&scheduler);
        assert!(procession::process::kill(killed.pid()));
        assert_eq!(killed.join(), Err(Exit::Killed));
        assert!(soon(&drops));

        let (panics, drops) = {
            let (dropped, drops) = mpsc::channel();
            let process = SpawnOptions::new().on(&scheduler).spawn_local(move || {
                let settled = Settled::new(&dropped);
                async move {
                    procession::yield_now().await;
                    settled.polled();
                    panic_quietly("as it is");
                }
            });
            (process, drops)
        };
        assert_eq!(panics.join(), Err::<(), _>(Exit::Panicked("as it is".into())));
        assert!(soon(&drops));

        let unmade = SpawnOptions::new().on(&scheduler).spawn_local(|| {
            if true {
                panic_quietly("it makes none");
            }
            pending::<()>()
        });
        assert_eq!(unmade.join(), Err(Exit::Panicked("it makes none".into())));

        let (left, drops) = waits(&scheduler);
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(60)));
        assert!(unfinished.is_empty(), "{unfinished:?}");
        assert_eq!(left.join(), Err(Exit::Shutdown));
        assert!(soon(&drops));
    }
    for scheduler in [driven(), driven_by_callers(), threaded(2)] {
        let (left, drops) = waits(&scheduler);
        drop(scheduler);
        assert_eq!(left.join(), Err(Exit::Killed));
        assert!(soon(&drops));
    }
}

/// A future that panics when it is dropped.
struct Hostile;

impl Drop for Hostile {
    fn drop(&mut self) {
        panic_quietly("in its drop");
    }
}

/// Goal: a future that panics while it is dropped does not keep its thread. Method: another thread
/// can drive the scheduler afterwards.
#[test]
fn a_panic_in_the_drop_of_a_future_releases_the_thread() {
    let scheduler = driven_by_callers();
    let hostile = || {
        SpawnOptions::new().on(&scheduler).spawn_local(|| {
            let (hostile, local) = (Hostile, Rc::new(()));
            async move {
                let _held = (&hostile, &local);
                pending::<()>().await;
            }
        })
    };
    let completes = SpawnOptions::new().on(&scheduler).spawn_local(|| {
        let hostile = Hostile;
        async move {
            let _held = &hostile;
        }
    });
    let (cancelled, killed) = (hostile(), hostile());
    scheduler.run_until_idle();
    assert_eq!(completes.join(), Err(Exit::Panicked("in its drop".into())));
    cancelled.cancel();
    procession::process::kill(killed.pid());
    scheduler.run_until_idle();
    assert_eq!((cancelled.join(), killed.join()), (Err(Exit::Shutdown), Err(Exit::Killed)));
    crate::home::thread::scope(|scope| {
        let drives = scope.spawn(|| scheduler.block_on(async { spawn(async { 1 }).await }));
        assert_eq!(drives.join().expect("it does not panic"), Ok(1));
    });
}

#[test]
fn a_local_process_keeps_the_callers_seat_until_its_thread_ends() {
    let scheduler = driven_by_callers();
    let (left, drops) = crate::home::thread::scope(|scope| {
        let owner = scope.spawn(|| waits(&scheduler));
        owner.join().expect("it does not panic")
    });
    assert!(drops.try_recv().expect("its thread has ended"), "it is dropped there");
    assert_eq!(scheduler.block_on(async { spawn(async { 1 }).await }), Ok(1), "others drive now");
    assert_eq!(left.join(), Err(Exit::ThreadEnded));
}

/// Goal: while the worker of a local process blocks, others run and it waits; then it continues on
/// its thread.
#[test]
fn a_local_process_waits_for_its_worker_while_that_blocks() {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("there are threads");
    let (local, drops) = {
        let (dropped, drops) = mpsc::channel();
        let process =
            SpawnOptions::new().on(&scheduler).start_local(move |mut cx: Context<u32>| {
                let settled = Settled::new(&dropped);
                async move {
                    let first = cx.recv().await;
                    settled.polled();
                    (first, settled.polls.get())
                }
            });
        (process, drops)
    };
    scheduler.run_until_idle();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (blocked, blocks) = mpsc::channel();
    let process = SpawnOptions::new().on(&scheduler).affinity(0).spawn(async move {
        procession::blocking(|| {
            blocked.send(()).expect("the test waits");
            goes_on.recv()
        })
    });
    soon(&blocks);
    local.send(7).expect("it receives");
    // Another thread takes the permit, and runs what is not bound.
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
    let row = scheduler.process(local.pid()).expect("it has not ended");
    assert_eq!((row.state, row.mailbox), (ProcessState::Ready, 1), "it waits for its worker");
    drop(go_on);
    assert_eq!(local.join(), Ok((Some(7), 1)));
    assert!(soon(&drops));
    assert!(process.join().expect("it does not panic").is_err());
}

/// Goal: a thread that took the place of a blocked one stays as long as its local process. Method:
/// of three threads, of which one is needed, two retire.
#[test]
fn a_surplus_thread_does_not_retire_before_its_local_process() {
    let (stopped, stops) = mpsc::channel();
    let stopped = procession_sync::Mutex::new(stopped);
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .keep_alive(Duration::ZERO)
        .on_thread_stop(move || {
            // Ignored: the last threads stop after the test.
            let _ = stopped.lock().send(this_thread());
        })
        .build()
        .expect("there are threads");
    let block = |options: SpawnOptions| {
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (blocked, blocks) = mpsc::channel();
        let process = options.on(&scheduler).spawn(async move {
            procession::blocking(|| {
                blocked.send(()).expect("the test waits");
                goes_on.recv()
            })
        });
        soon(&blocks);
        (process, go_on)
    };
    let first = block(SpawnOptions::new().affinity(0));
    let (dropped, drops) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    let local = SpawnOptions::new().on(&scheduler).start_local(move |mut cx: Context<()>| {
        begun.send(this_thread()).expect("the test listens");
        let settled = Settled::new(&dropped);
        async move {
            let received = cx.recv().await;
            settled.polled();
            received
        }
    });
    let thread = soon(&begins);
    let second = block(SpawnOptions::new());
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1), "on the third thread");
    for (process, go_on) in [first, second] {
        drop(go_on);
        assert!(process.join().expect("it does not panic").is_err());
    }
    let retired = [soon(&stops), soon(&stops)];
    assert!(!retired.contains(&thread), "it has a local process");
    local.send(()).expect("it receives");
    assert_eq!(local.join(), Ok(Some(())));
    assert!(soon(&drops));
}

#[test]
fn local_processes_are_spread_before_they_begin() {
    let scheduler = unwatched(2);
    let (gate, open) = channel::bounded::<()>(0);
    let spread = Arc::new(SpreadBegins::default());
    let (begun, begins) = mpsc::channel();
    let notes = Arc::clone(&spread);
    let spawns = scheduler.spawn(async move {
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (open, begun, notes) = (open.clone(), begun.clone(), Arc::clone(&notes));
                procession::SpawnOptions::new().spawn_local(move || {
                    notes.note();
                    begun.send(()).expect("the test waits");
                    async move { open.recv().await }
                })
            })
            .collect();
        for local in all {
            assert_eq!(local.await, Ok(None));
        }
    });
    (0..100).for_each(|_| soon(&begins));
    assert!(spread.is_spread(), "one of two workers has begun most of them");
    drop(gate);
    assert_eq!(spawns.join(), Ok(()));
}

#[test]
fn a_refused_local_process_gives_the_closure_back() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().max_processes(1);
    let scheduler = builder.build().expect("it starts no thread");
    let only = scheduler.spawn(pending::<()>());
    let options = || SpawnOptions::new().on(&scheduler);
    let refused = options().try_start_local(|_: Context<()>| async { *Rc::new(5) == *Rc::new(5) });
    let make = refused.expect_err("there is no room").into_inner();
    assert_eq!(options().spawn_local(|| async {}).join(), Err(Exit::Refused));
    let started = options().start_local(|_: Context<()>| pending::<()>());
    assert_eq!(started.join(), Err(Exit::Refused));
    only.cancel();
    assert_eq!(only.join(), Err(Exit::Shutdown));
    assert_eq!(options().start_local(make).join(), Ok(true));
    let gone = options().affinity(3).try_start_local(|_: Context<()>| async {});
    assert!(gone.is_err(), "there is no such worker");
}
