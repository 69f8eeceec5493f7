//! The clinic on may: coroutines that block where futures wait.

mod verdict;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc as threads};
use std::time::{Duration, Instant};

use may::coroutine::{self, sleep, yield_now};
use may::go;
use may::sync::{Mutex, RwLock, mpsc};

use verdict::{MILLISECOND, Row, Verdict, WIDTH, block, compute, hold, late, now, refused};

const ROWS: [Row; 14] = [
    ("driver", driver),
    ("lifo", lifo),
    ("wake_race", wake_race),
    ("steal_half", steal_half),
    ("hogs", || hogs(WIDTH)),
    ("many_hogs", || hogs(4 * WIDTH)),
    ("yield_loop", yield_loop),
    ("ready_loop", ready_loop),
    ("block_on", block_on),
    ("recursive_read", recursive_read),
    ("lock_over_children", lock_over_children),
    ("abandoned_send", abandoned_send),
    ("leak", leak),
    ("many_blocked", many_blocked),
];

fn main() {
    verdict::main(&ROWS)
}

fn workers(count: usize) {
    may::config().set_workers(count);
}

/// Says that it has happened. Ignored: `late` has ended the program already.
fn tell(to_main: &threads::Sender<Instant>) {
    let _ = to_main.send(now());
}

fn spawn(body: impl FnOnce() + Send + 'static) {
    drop(go!(body));
}

fn driver() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let due = now() + 100 * MILLISECOND;
    spawn(|| {
        sleep(50 * MILLISECOND);
        hold();
    });
    spawn(move || {
        sleep(100 * MILLISECOND);
        tell(&tells);
    });
    late(due, &told)
}

fn lifo() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let (to_waiting, waiting) = mpsc::channel();
    spawn(move || {
        waiting.recv().expect("it is open");
        tell(&tells);
    });
    let due = now() + 50 * MILLISECOND;
    spawn(move || {
        sleep(50 * MILLISECOND);
        to_waiting.send(()).expect("it waits");
        hold();
    });
    late(due, &told)
}

fn wake_race() -> Verdict {
    const ROUNDS: u32 = 200_000;
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let (to_one, one) = mpsc::channel();
    let (to_other, other) = mpsc::channel();
    spawn(move || {
        for _ in 0..ROUNDS {
            one.recv().expect("it is open");
            to_other.send(()).expect("it is open");
        }
    });
    let begun = now();
    spawn(move || {
        for _ in 0..ROUNDS {
            to_one.send(()).expect("it is open");
            other.recv().expect("it is open");
        }
        tell(&tells);
    });
    match told.recv() {
        Ok(_) => Verdict::Ends(Duration::ZERO),
        Err(error) => refused(begun, error),
    }
}

fn steal_half() -> Verdict {
    const BURSTS: usize = 200;
    const BURST: usize = 1000;
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let runs: Arc<[AtomicU8]> = (0..BURSTS * BURST).map(|_| AtomicU8::new(0)).collect();
    let (counted, all) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&runs));
    spawn(move || {
        for burst in 0..BURSTS {
            let handles: Vec<_> = (burst * BURST..(burst + 1) * BURST)
                .map(|number| {
                    let (runs, counted) = (Arc::clone(&runs), Arc::clone(&counted));
                    let tells = tells.clone();
                    go!(move || {
                        runs[number].fetch_add(1, Ordering::Relaxed);
                        if counted.fetch_add(1, Ordering::AcqRel) + 1 == BURSTS * BURST {
                            tell(&tells);
                        }
                    })
                })
                .collect();
            // Each coroutine has a stack, so not all are there at once.
            for handle in handles {
                handle.join().expect("nothing panics");
            }
        }
    });
    let begun = now();
    if let Err(error) = told.recv() {
        return refused(begun, error);
    }
    let twice = all.iter().filter(|runs| runs.load(Ordering::Relaxed) != 1).count();
    match twice {
        0 => Verdict::Ends(Duration::ZERO),
        _ => refused(begun, format!("{twice} coroutines did not run once")),
    }
}

fn hogs(count: usize) -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    for _ in 0..count {
        spawn(|| compute());
    }
    block(100 * MILLISECOND);
    let due = now();
    spawn(move || tell(&tells));
    late(due, &told)
}

fn many_blocked() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    for _ in 0..100 {
        spawn(|| hold());
    }
    block(500 * MILLISECOND);
    let due = now();
    spawn(move || tell(&tells));
    late(due, &told)
}

fn yield_loop() -> Verdict {
    workers(1);
    let (tells, told) = threads::channel();
    for _ in 0..2 {
        spawn(|| {
            loop {
                yield_now();
            }
        });
    }
    let due = now() + 50 * MILLISECOND;
    spawn(move || {
        sleep(50 * MILLISECOND);
        tell(&tells);
    });
    late(due, &told)
}

fn ready_loop() -> Verdict {
    workers(1);
    let (tells, told) = threads::channel();
    let (to_itself, receives) = mpsc::channel();
    spawn(move || {
        loop {
            to_itself.send(()).expect("it is open");
            receives.recv().expect("it is open");
        }
    });
    block(50 * MILLISECOND);
    let due = now();
    spawn(move || tell(&tells));
    late(due, &told)
}

/// All workers block, by the standard library, on what other coroutines have to do.
fn block_on() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let (at_once, due) = (Arc::new(Barrier::new(WIDTH)), now());
    for _ in 0..WIDTH {
        let (at_once, tells) = (Arc::clone(&at_once), tells.clone());
        spawn(move || {
            at_once.wait();
            let (sends, receives) = threads::channel();
            spawn(move || sends.send(()).expect("it waits"));
            receives.recv().expect("it is open");
            tell(&tells);
        });
    }
    match late(due, &told) {
        Verdict::Ends(_) => late(due, &told),
        other => other,
    }
}

fn recursive_read() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let lock = Arc::new(RwLock::new(()));
    let written = Arc::clone(&lock);
    spawn(move || {
        sleep(50 * MILLISECOND);
        drop(written.write());
    });
    let due = now() + 100 * MILLISECOND;
    spawn(move || {
        let outer = lock.read();
        sleep(100 * MILLISECOND);
        drop(lock.read());
        drop(outer);
        tell(&tells);
    });
    late(due, &told)
}

fn lock_over_children() -> Verdict {
    const COROUTINES: usize = 8;
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let lock = Arc::new(Mutex::new(0));
    for _ in 0..COROUTINES {
        let (lock, tells) = (Arc::clone(&lock), tells.clone());
        spawn(move || {
            let mut count = lock.lock().expect("nothing panics");
            let children: Vec<_> = (0..8).map(|_| go!(|| ())).collect();
            for child in children {
                child.join().expect("nothing panics");
            }
            *count += 1;
            if *count == COROUTINES {
                tell(&tells);
            }
        });
    }
    late(now(), &told)
}

fn abandoned_send() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let (to_nobody, gone) = mpsc::channel();
    let due = now() + 50 * MILLISECOND;
    spawn(move || {
        sleep(50 * MILLISECOND);
        // Ignored: the error is what lets it go on.
        let _ = (to_nobody.send(()), to_nobody.send(()));
        tell(&tells);
    });
    drop(gone);
    late(due, &told)
}

fn leak() -> Verdict {
    workers(WIDTH);
    let (tells, told) = threads::channel();
    let due = now();
    spawn(move || {
        let (to_itself, receives) = mpsc::channel::<()>();
        receives.recv().expect("it is open");
        drop(to_itself);
        tell(&tells);
        coroutine::park();
    });
    late(due, &told)
}
