//! Waits outside of a scheduler whose workers are all stuck, and which has no watchdog.
//!
//! Method: each of its workers waits for a channel that the test holds, or no caller drives it. A
//! limit of time that depends on its threads is a hang, which `outwait` reports.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use futures_lite::future::poll_once;
use procession::process::Outcome;
use procession::scheduler::Builder;
use procession::time::run_after;
use procession::{CallError, Context, Reply, Scheduler, SpawnOptions, net, sleep, timeout};
use procession_sync::Mutex;

use crate::home::mpsc::Sender;
use crate::home::{mpsc, thread};
use crate::scene::{TIMEOUT, alone, soon, threaded};

const SHORT: Duration = Duration::from_millis(20);

/// A scheduler of which nothing runs until the gates are dropped.
struct Stuck {
    scheduler: Scheduler,
    gates: Vec<Sender<()>>,
}

impl Stuck {
    /// Each worker waits for a gate.
    fn blocked(builder: Builder, width: usize) -> Self {
        let builder = builder.worker_threads(width);
        Self::block(builder.build().expect("the system has threads"), width)
    }

    fn block(scheduler: Scheduler, width: usize) -> Self {
        let (enters, entered) = mpsc::channel();
        let block = |_| {
            let (gate, waits) = mpsc::channel::<()>();
            let enters = enters.clone();
            drop(scheduler.spawn(async move {
                enters.send(()).expect("the test listens");
                waits.recv().unwrap_or_default();
            }));
            soon(&entered);
            gate
        };
        let gates = (0..width).map(block).collect();
        Self { scheduler, gates }
    }

    /// No caller drives it.
    fn idle() -> Self {
        let builder = Scheduler::builder().worker_threads(1).callers_drive();
        let scheduler = builder.build().expect("it starts no thread");
        drop(scheduler.spawn(pending::<()>()));
        Self { scheduler, gates: Vec::new() }
    }

    /// Shows that `wait` is over in time. It runs on a thread that belongs to no scheduler.
    fn outwait<R: Send>(&mut self, wait: impl FnOnce(Scheduler) -> R + Send) -> R {
        let (tells, told) = mpsc::channel();
        let scheduler = self.scheduler.clone();
        thread::scope(|scope| {
            scope.spawn(move || tells.send(wait(scheduler)).unwrap_or_default());
            told.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
                // Otherwise the scope would wait forever.
                self.gates.clear();
                self.scheduler.run_until_idle();
                panic!("it hangs")
            })
        })
    }

    fn release(self) {
        drop(self.gates);
        let unfinished = self.scheduler.block_on(self.scheduler.shutdown(TIMEOUT));
        assert!(unfinished.processes.is_empty(), "{unfinished:?}");
    }
}

/// Polls `future` on this thread, which knows nothing of schedulers.
fn foreign<F: Future>(future: F) -> F::Output {
    struct Token(Mutex<Sender<()>>);
    impl Wake for Token {
        fn wake(self: Arc<Self>) {
            // Ignored: the future is complete.
            let _ = self.0.lock().send(());
        }
    }
    let (wakes, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Token(Mutex::new(wakes))));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return output;
        }
        woken.recv().expect("the waker is here");
    }
}

/// Awaits a future in a process of another scheduler.
fn in_process<F: Future<Output: Send> + Send + 'static>(future: F) -> F::Output {
    threaded(1).spawn(future).join().expect("it ends")
}

/// Runs a function in a coroutine of another scheduler.
fn in_coroutine<R: Outcome + Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    // SAFETY: the coroutines here hold no scoped thread-local pointer across a wait.
    let builder = unsafe { alone().worker_threads(1).enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads and memory");
    let options = SpawnOptions::new().on(&scheduler);
    let runs = options.try_start_coroutine(|_: procession::coroutine::Context<()>| run());
    runs.expect("they are enabled").join().expect("it ends")
}

/// Kinds of schedulers without a watchdog of which nothing runs, with the number of processes.
fn kinds() -> [(Stuck, usize); 3] {
    [
        (Stuck::blocked(alone().max_threads(1), 1), 1),
        (Stuck::blocked(alone().watchdog(false), 2), 2),
        (Stuck::idle(), 1),
    ]
}

#[test]
fn a_shutdown_is_over_by_its_deadline() {
    for (mut stuck, left) in kinds() {
        let waits: [fn(Scheduler) -> usize; 5] = [
            |own| in_process(async move { own.shutdown(SHORT).await.processes.len() }),
            |own| threaded(1).block_on(own.shutdown(SHORT)).processes.len(),
            |own| foreign(own.shutdown(SHORT)).processes.len(),
            // The last two would drive a scheduler that callers drive.
            |own| own.block_on(own.shutdown(SHORT)).processes.len(),
            |own| in_coroutine(move || own.block_on(own.shutdown(SHORT)).processes.len()),
        ];
        let count = if stuck.gates.is_empty() { 3 } else { 5 };
        for &wait in &waits[..count] {
            assert_eq!(stuck.outwait(wait), left);
        }
        stuck.release();
    }
}

#[test]
fn a_limit_of_time_holds_for_what_waits_elsewhere() {
    for (mut stuck, _) in kinds() {
        let waits: [fn(Scheduler) -> bool; 6] = [
            |own| in_process(async move { timeout(SHORT, own.wait_until_empty()).await.is_err() }),
            |own| {
                let silent = own.start(|mut cx: Context<Reply<()>>| async move {
                    cx.recv().await;
                });
                let called = async move { silent.call(|reply| reply, SHORT).await };
                matches!(in_process(called), Err(CallError::Elapsed))
            },
            |own| {
                let process = own.spawn(pending::<()>());
                in_coroutine(move || process.join_timeout(SHORT).is_err())
            },
            |own| {
                let mut inbox = own.attach::<()>();
                in_coroutine(move || inbox.recv_timeout(SHORT).is_err())
            },
            |own| {
                let guard = own.enter();
                let slept = foreign(timeout(SHORT, pending::<()>()));
                drop(guard);
                slept.is_err()
            },
            |own| {
                let (one, _other) = {
                    let _guard = own.enter();
                    net::UnixStream::pair().expect("there are descriptors")
                };
                one.set_read_timeout(Some(SHORT)).expect("it is not zero");
                let read = in_process(async move { one.read(&mut [0]).await });
                read.expect_err("nothing was sent").kind() == std::io::ErrorKind::TimedOut
            },
        ];
        for wait in waits {
            assert!(stuck.outwait(wait));
        }
        stuck.release();
    }
}

#[test]
fn a_function_of_a_timer_that_was_set_elsewhere_runs() {
    for (mut stuck, _) in kinds() {
        stuck.outwait(|own| {
            let (runs, ran) = mpsc::channel();
            let _guard = own.enter();
            let sent = move || runs.send(()).expect("the test listens");
            let _timer = run_after(SHORT, sent).map_err(drop).expect("there is room");
            soon(&ran);
        });
        stuck.release();
    }
}

#[test]
fn a_sleep_that_began_on_a_worker_which_is_stuck_now_ends() {
    let scheduler = alone().worker_threads(1).max_threads(1).build().expect("there are threads");
    let begins = scheduler.spawn(async {
        let mut slept = Box::pin(sleep(SHORT));
        // The test does not depend on whether it is over already.
        let _is_over = poll_once(slept.as_mut()).await;
        slept
    });
    let slept = begins.join().expect("it ends");
    let mut stuck = Stuck::block(scheduler, 1);
    stuck.outwait(|_| in_process(slept));
    stuck.release();
}
