//! The clinic on rayon, a pool of threads for parallel computations.

mod verdict;

use std::sync::{Arc, Barrier, Mutex, mpsc};

use rayon::ThreadPoolBuilder;

use verdict::{MILLISECOND, Row, Verdict, WIDTH, block, late, now};

const ROWS: [Row; 2] =
    [("nested_blocking", nested_blocking), ("lock_over_children", lock_over_children)];

fn main() {
    verdict::main(&ROWS)
}

/// Each thread of the pool waits, by a channel, for a job of the same pool.
fn nested_blocking() -> Verdict {
    let pool = ThreadPoolBuilder::new().num_threads(WIDTH).build().expect("the system has threads");
    let pool: &'static _ = Box::leak(Box::new(pool));
    let (tells, told) = mpsc::channel();
    let (begun, at_once) = (now(), Arc::new(Barrier::new(WIDTH)));
    for _ in 0..WIDTH {
        let (tells, at_once) = (tells.clone(), Arc::clone(&at_once));
        pool.spawn(move || {
            at_once.wait();
            let (ends, ended) = mpsc::channel();
            pool.spawn(move || ends.send(()).expect("the outer job waits"));
            ended.recv().expect("the inner job ends");
            // Ignored: the row has ended.
            let _ = tells.send(now());
        });
    }
    match late(begun, &told) {
        Verdict::Ends(_) => late(begun, &told),
        other => other,
    }
}

/// A job takes a lock, and does a part of its work in parallel before it releases the lock. Another
/// such job comes while the first one waits for a part that another thread has stolen.
fn lock_over_children() -> Verdict {
    let pool = ThreadPoolBuilder::new().num_threads(WIDTH).build().expect("the system has threads");
    let pool: &'static _ = Box::leak(Box::new(pool));
    let (lock, begun) = (Arc::new(Mutex::new(())), now());
    let (tells, told) = mpsc::channel();
    for _ in 0..2 {
        let (lock, tells) = (Arc::clone(&lock), tells.clone());
        pool.spawn(move || {
            let held = lock.lock().expect("nothing panics");
            rayon::join(|| block(5 * MILLISECOND), || block(100 * MILLISECOND));
            drop(held);
            // Ignored: the row has ended.
            let _ = tells.send(now());
        });
        block(50 * MILLISECOND);
    }
    match late(begun, &told) {
        Verdict::Ends(_) => late(begun + 200 * MILLISECOND, &told),
        other => other,
    }
}
