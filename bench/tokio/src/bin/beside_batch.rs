//! Requests beside batch work on tokio: on `two` runtimes, on two of which one is `nice`, or on
//! `one`.

#[path = "../../../own/src/beside_batch.rs"]
mod beside_batch;

use beside_batch::{BATCH, PART, Parts, compute, measure, now};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn runtime(is_nice: bool) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).on_thread_start(move || {
        if is_nice {
            rustix::process::nice(10).expect("a thread may become nicer");
        }
    });
    builder.build().expect("the system has threads")
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "two".to_owned());
    let requests = runtime(false);
    let other = (name != "one").then(|| runtime(name == "nice"));
    let batch = other.as_ref().unwrap_or(&requests);
    let parts = Parts::default();
    for _ in 0..BATCH {
        let parts = parts.clone();
        drop(batch.spawn(async move {
            loop {
                parts.work(PART);
                tokio::task::yield_now().await;
            }
        }));
    }
    measure(&format!("tokio, {name}"), &parts, |due, sender| {
        drop(requests.spawn(async move {
            compute(PART);
            // Ignored: the measurement is over.
            let _ = sender.send(now() - due);
        }));
    });
    // The batch work never ends.
    std::process::exit(0);
}
