//! The rows that are the same on every runtime for futures. `crate::rt` has the names of the
//! runtime; `rows.toml` says what each row is about.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use procession_sync::atomic::Ordering::{AcqRel, Relaxed};
use procession_sync::atomic::{AtomicU8, AtomicUsize};

use crate::rt;
use crate::verdict::{MILLISECOND, Row, Verdict, WIDTH, block, compute, hold, late, now};

pub(crate) const ROWS: [Row; 17] = [
    ("driver", driver),
    ("lifo", lifo),
    ("futurelock", futurelock),
    ("wake_race", wake_race),
    ("steal_half", steal_half),
    ("overtaken", overtaken),
    ("hogs", || hogs(WIDTH)),
    ("many_hogs", || hogs(4 * WIDTH)),
    ("yield_loop", yield_loop),
    ("ready_loop", ready_loop),
    ("fired_timer", fired_timer),
    ("block_on", block_on),
    ("recursive_read", recursive_read),
    ("lock_over_children", lock_over_children),
    ("abandoned_send", abandoned_send),
    ("leak", leak),
    ("many_blocked", many_blocked),
];

type Told = (mpsc::Sender<Instant>, mpsc::Receiver<Instant>);

fn told() -> Told {
    mpsc::channel()
}

/// Says that it has happened. Ignored: `late` has ended the program already.
fn tell(to_main: &mpsc::Sender<Instant>) {
    let _ = to_main.send(now());
}

/// Polls once. A future that is ready is an error of the row.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|task| {
        assert!(future.as_mut().poll(task).is_pending(), "the row needs a future that waits");
        Poll::Ready(())
    })
    .await;
}

/// All workers are idle. The worker that its timer wakes runs a step that blocks forever.
fn driver() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let due = now() + 100 * MILLISECOND;
    runtime.spawn(async {
        rt::sleep(50 * MILLISECOND).await;
        hold();
    });
    runtime.spawn(async move {
        rt::sleep(100 * MILLISECOND).await;
        tell(&tells);
    });
    late(due, &told)
}

/// A step wakes another process and then blocks forever.
fn lifo() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let (to_waiting, mut waiting) = rt::channel(1);
    runtime.spawn(async move {
        rt::receive(&mut waiting).await;
        tell(&tells);
    });
    let due = now() + 50 * MILLISECOND;
    runtime.spawn(async move {
        rt::sleep(50 * MILLISECOND).await;
        rt::send(&to_waiting, ()).await;
        hold();
    });
    late(due, &told)
}

/// A process stands in line for a lock with a future that it polls no more, and then waits for
/// the lock once more.
fn futurelock() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let lock = Arc::new(rt::Mutex::new(()));
    let (held, to_hold) = (Arc::clone(&lock), now());
    runtime.spawn(async move {
        let guard = held.lock().await;
        rt::sleep(100 * MILLISECOND).await;
        drop(guard);
    });
    runtime.spawn(async move {
        rt::sleep(50 * MILLISECOND).await;
        let mut left = pin!(lock.lock());
        poll_once(left.as_mut()).await;
        drop(lock.lock().await);
        tell(&tells);
    });
    late(to_hold + 100 * MILLISECOND, &told)
}

/// A flag that one process waits for.
#[derive(Default)]
struct Flag(Mutex<(bool, Option<Waker>)>);

impl Flag {
    fn raise(&self) {
        let mut flag = self.0.lock().expect("nothing panics");
        flag.0 = true;
        let waker = flag.1.take();
        drop(flag);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn raised(&self) {
        poll_fn(|task| {
            let mut flag = self.0.lock().expect("nothing panics");
            if std::mem::take(&mut flag.0) {
                return Poll::Ready(());
            }
            flag.1 = Some(task.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Two processes wake each other while the woken one is about to wait.
fn wake_race() -> Verdict {
    const ROUNDS: u32 = 200_000;
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let (one, other) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
    let (raised, raises) = (Arc::clone(&one), Arc::clone(&other));
    runtime.spawn(async move {
        for _ in 0..ROUNDS {
            raised.raised().await;
            raises.raise();
        }
    });
    let (begun, waited) = (now(), told);
    runtime.spawn(async move {
        for _ in 0..ROUNDS {
            one.raise();
            other.raised().await;
        }
        tell(&tells);
    });
    match waited.recv() {
        Ok(_) => Verdict::Ends(Duration::ZERO),
        Err(_) => crate::verdict::refused(begun, "a process has ended early"),
    }
}

/// Bursts of processes are queued by one worker while others steal from it. Each runs once.
fn steal_half() -> Verdict {
    const BURSTS: usize = 200;
    const BURST: usize = 1000;
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let runs: Arc<[AtomicU8]> = (0..BURSTS * BURST).map(|_| AtomicU8::new(0)).collect();
    let (counted, all) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&runs));
    runtime.spawn(async move {
        for number in 0..BURSTS * BURST {
            let (runs, counted) = (Arc::clone(&runs), Arc::clone(&counted));
            let tells = tells.clone();
            rt::spawn(async move {
                runs[number].fetch_add(1, Relaxed);
                // Ordering: Release and Acquire, so that the last process has seen all runs.
                if counted.fetch_add(1, AcqRel) + 1 == BURSTS * BURST {
                    tell(&tells);
                }
            });
            if number % BURST == 0 {
                rt::yield_now().await;
            }
        }
    });
    let begun = now();
    if told.recv().is_err() {
        return crate::verdict::refused(begun, "processes were lost");
    }
    let twice = all.iter().filter(|runs| runs.load(Relaxed) != 1).count();
    if twice == 0 {
        Verdict::Ends(Duration::ZERO)
    } else {
        crate::verdict::refused(begun, format!("{twice} processes did not run once"))
    }
}

/// One after the other, two processes of one worker wait for a lock. The first has just received
/// many messages.
fn overtaken() -> Verdict {
    let runtime = rt::runtime(1);
    let (tells, told) = mpsc::channel();
    runtime.spawn(async move {
        let mut overtaken = 0;
        for received in 90..180 {
            let lock = Arc::new(rt::Mutex::new(Vec::new()));
            let guard = lock.lock().await;
            let (to_first, mut first_receives) = rt::channel(200);
            for _ in 0..received {
                rt::send(&to_first, ()).await;
            }
            let (done, mut ends) = rt::channel(2);
            let (first, second) = (Arc::clone(&lock), Arc::clone(&lock));
            let ended = done.clone();
            rt::spawn(async move {
                for _ in 0..received {
                    rt::receive(&mut first_receives).await;
                }
                // The call comes first: the other process runs at the next wait of this one.
                rt::spawn(async move {
                    second.lock().await.push(2);
                    rt::send(&ended, ()).await;
                });
                first.lock().await.push(1);
                rt::send(&done, ()).await;
            });
            rt::sleep(5 * MILLISECOND).await;
            drop(guard);
            rt::receive(&mut ends).await;
            rt::receive(&mut ends).await;
            overtaken += u32::from(*lock.lock().await == [2, 1]);
        }
        // Ignored: the row has ended.
        let _ = tells.send(overtaken);
    });
    match told.recv() {
        Ok(0) => Verdict::Ends(Duration::ZERO),
        Ok(times) => Verdict::Delayed(format!("overtaken in {times} of 90 lines")),
        Err(_) => crate::verdict::refused(now(), "a process has ended early"),
    }
}

/// So many computations run forever, and then a process becomes ready.
fn hogs(count: usize) -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    for _ in 0..count {
        runtime.spawn(async { compute() });
    }
    block(100 * MILLISECOND);
    let due = now();
    runtime.spawn(async move { tell(&tells) });
    late(due, &told)
}

/// More steps block forever than any runtime here has workers, and then a process becomes ready.
fn many_blocked() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    for _ in 0..100 {
        runtime.spawn(async { hold() });
    }
    block(500 * MILLISECOND);
    let due = now();
    runtime.spawn(async move { tell(&tells) });
    late(due, &told)
}

/// Two processes of one worker yield without end, and a third one sleeps.
fn yield_loop() -> Verdict {
    let runtime = rt::runtime(1);
    let (tells, told) = told();
    for _ in 0..2 {
        runtime.spawn(async {
            loop {
                rt::yield_now().await;
            }
        });
    }
    let due = now() + 50 * MILLISECOND;
    runtime.spawn(async move {
        rt::sleep(50 * MILLISECOND).await;
        tell(&tells);
    });
    late(due, &told)
}

/// Each receive of a process finds a message. Another process has the same worker.
fn ready_loop() -> Verdict {
    let runtime = rt::runtime(1);
    let (tells, told) = told();
    let (to_itself, mut receives) = rt::channel(2);
    runtime.spawn(async move {
        loop {
            rt::send(&to_itself, ()).await;
            rt::receive(&mut receives).await;
        }
    });
    block(50 * MILLISECOND);
    let due = now();
    runtime.spawn(async move { tell(&tells) });
    late(due, &told)
}

/// One poll looks at a channel that is never empty and at a timer, until the timer has fired.
fn fired_timer() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let due = now() + 50 * MILLISECOND;
    runtime.spawn(async move {
        let (to_itself, mut receives) = rt::channel(2);
        let mut timer = pin!(rt::sleep(50 * MILLISECOND));
        poll_fn(|task| {
            loop {
                if timer.as_mut().poll(task).is_ready() {
                    return Poll::Ready(());
                }
                // Ignored: whether there is a message matters to nobody.
                let _ = pin!(rt::send(&to_itself, ())).as_mut().poll(task);
                let _ = pin!(rt::receive(&mut receives)).as_mut().poll(task);
            }
        })
        .await;
        tell(&tells);
    });
    late(due, &told)
}

/// Wakes the thread that blocks on a future.
struct Parker(Thread);

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the calling thread until a future is ready, as executors without workers do.
pub(crate) fn block_thread_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Parker(thread::current())));
    let mut task = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// All workers block on futures that other processes have to complete.
fn block_on() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let (at_once, due) = (Arc::new(Barrier::new(WIDTH)), now());
    for _ in 0..WIDTH {
        let (at_once, tells) = (Arc::clone(&at_once), tells.clone());
        runtime.spawn(async move {
            at_once.wait();
            let (sends, mut receives) = rt::channel(1);
            rt::spawn(async move {
                rt::send(&sends, ()).await;
            });
            block_thread_on(rt::receive(&mut receives));
            tell(&tells);
        });
    }
    // Both have to end.
    match late(due, &told) {
        Verdict::Ends(_) => late(due, &told),
        other => other,
    }
}

/// A reader reads once more, while a writer waits.
fn recursive_read() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let lock = Arc::new(rt::RwLock::new(()));
    let written = Arc::clone(&lock);
    runtime.spawn(async move {
        rt::sleep(50 * MILLISECOND).await;
        drop(written.write().await);
    });
    let due = now() + 100 * MILLISECOND;
    runtime.spawn(async move {
        let outer = lock.read().await;
        rt::sleep(100 * MILLISECOND).await;
        drop(lock.read().await);
        drop(outer);
        tell(&tells);
    });
    late(due, &told)
}

/// Processes take a lock, start others, and wait for these before they release the lock.
fn lock_over_children() -> Verdict {
    const PROCESSES: usize = 8;
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let lock = Arc::new(rt::Mutex::new(0));
    for _ in 0..PROCESSES {
        let (lock, tells) = (Arc::clone(&lock), tells.clone());
        runtime.spawn(async move {
            let mut count = lock.lock().await;
            let (done, mut ends) = rt::channel(8);
            for _ in 0..8 {
                let done = done.clone();
                rt::spawn(async move {
                    rt::send(&done, ()).await;
                });
            }
            for _ in 0..8 {
                rt::receive(&mut ends).await;
            }
            *count += 1;
            if *count == PROCESSES {
                tell(&tells);
            }
        });
    }
    late(now(), &told)
}

/// Somebody has asked a process for a result, and has gone when the process sends the result.
fn abandoned_send() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let (to_nobody, gone) = rt::channel(1);
    let due = now() + 50 * MILLISECOND;
    runtime.spawn(async move {
        rt::sleep(50 * MILLISECOND).await;
        // The second one finds no room, unless the first was refused.
        rt::send(&to_nobody, ()).await;
        rt::send(&to_nobody, ()).await;
        tell(&tells);
    });
    drop(gone);
    late(due, &told)
}

/// A process waits for a message that only it could send.
fn leak() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = told();
    let due = now();
    runtime.spawn(async move {
        let (to_itself, mut receives) = rt::channel::<()>(1);
        rt::receive(&mut receives).await;
        drop(to_itself);
        tell(&tells);
    });
    late(due, &told)
}
