//! Requests beside batch work, on one scheduler with priorities. With the argument `steps`, the
//! batch work has steps of 10 ms and no checkpoints, and `max_batch` has its default.

#[path = "../beside_batch.rs"]
mod beside_batch;

use std::time::Duration;

use beside_batch::{BATCH, PART, Parts, compute, measure, now};
use procession::process::Priority;
use procession::{Scheduler, SpawnOptions, checkpoint, yield_now};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let steps = std::env::args().nth(1).as_deref() == Some("steps");
    let builder = Scheduler::builder().worker_threads(2);
    let builder = if steps { builder } else { builder.max_batch(2) };
    let scheduler = builder.build().expect("the system has threads");
    let parts = Parts::default();
    for _ in 0..BATCH {
        let parts = parts.clone();
        let options = SpawnOptions::new().on(&scheduler).priority(Priority::Batch);
        drop(options.spawn(async move {
            loop {
                if steps {
                    parts.work(Duration::from_millis(10));
                    yield_now().await;
                } else {
                    parts.work(PART);
                    checkpoint().await;
                }
            }
        }));
    }
    let name = if steps { "procession, steps" } else { "procession" };
    measure(name, &parts, |due, sender| {
        drop(scheduler.spawn(async move {
            compute(PART);
            // Ignored: the measurement is over.
            let _ = sender.send(now() - due);
        }));
    });
    // The batch work never ends.
    std::process::exit(0);
}
