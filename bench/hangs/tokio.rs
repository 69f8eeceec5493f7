//! The clinic on tokio. Built with `--cfg tokio_unstable`, it has the unstable options that help.

mod rows;
mod verdict;

use std::sync::{Arc, Barrier, mpsc};

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{mpsc as channel, oneshot};

use verdict::{MILLISECOND, Row, Verdict, WIDTH, block, hold, late, now, refused};

/// The names that the rows need.
mod rt {
    use std::future::Future;

    use tokio::runtime::{Builder, Runtime as Tokio};
    use tokio::sync::mpsc;
    pub(crate) use tokio::sync::mpsc::channel;
    pub(crate) use tokio::sync::{Mutex, RwLock};
    pub(crate) use tokio::task::yield_now;
    pub(crate) use tokio::time::sleep;

    pub(crate) struct Runtime(pub(crate) Tokio);

    impl Runtime {
        pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
            drop(self.0.spawn(future));
        }
    }

    pub(crate) fn builder(workers: usize) -> Builder {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).enable_time();
        #[cfg(tokio_unstable)]
        {
            builder.enable_eager_driver_handoff().enable_sharded_blocking_queue();
            builder.disable_lifo_slot();
            // These timers belong to the worker on which they were set.
            if std::env::var_os("TOKIO_ALT_TIMER").is_some() {
                builder.enable_alt_timer();
            }
        }
        builder
    }

    /// A runtime that stays until the program ends.
    pub(crate) fn runtime(workers: usize) -> &'static Runtime {
        let runtime = builder(workers).build().expect("the system has threads");
        Box::leak(Box::new(Runtime(runtime)))
    }

    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(future));
    }

    pub(crate) async fn send<T: Send>(to: &mpsc::Sender<T>, message: T) -> bool {
        to.send(message).await.is_ok()
    }

    pub(crate) async fn receive<T: Send>(from: &mut mpsc::Receiver<T>) -> Option<T> {
        from.recv().await
    }
}

const ROWS: [Row; 5] = [
    ("refused_thread", refused_thread),
    ("nested_blocking", nested_blocking),
    ("own_mailbox", own_mailbox),
    ("call_cycle", call_cycle),
    ("shutdown", shutdown),
];

fn main() {
    verdict::main(&[&rows::ROWS[..], &ROWS].concat())
}

/// The system refuses the thread of a closure that blocks.
fn refused_thread() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    block(200 * MILLISECOND);
    limit_memory();
    let begun = now();
    let caller = runtime.0.spawn(async { tokio::task::spawn_blocking(|| ()).await });
    match runtime.0.block_on(caller).and_then(|inner| inner) {
        Ok(()) => Verdict::Ends(begun.elapsed()),
        Err(error) => refused(begun, error),
    }
}

/// Leaves no room for the stack of another thread, which `rows.toml` makes large.
fn limit_memory() {
    let stated = std::fs::read_to_string("/proc/self/statm").expect("there is a /proc");
    let pages = stated.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let used = pages.expect("it begins with a number") * page_size() as u64;
    let limit = Rlimit { current: Some(used + (32 << 20)), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).expect("the soft limit is ours");
}

/// Each thread for blocking closures waits for another such closure.
fn nested_blocking() -> Verdict {
    let built = rt::builder(WIDTH).max_blocking_threads(WIDTH).build();
    let runtime = Box::leak(Box::new(built.expect("the system has threads")));
    let (begun, at_once) = (now(), Arc::new(Barrier::new(WIDTH)));
    let outer: Vec<_> = (0..WIDTH)
        .map(|_| {
            let (handle, at_once) = (runtime.handle().clone(), Arc::clone(&at_once));
            runtime.spawn_blocking(move || {
                at_once.wait();
                handle.block_on(handle.spawn_blocking(|| ()))
            })
        })
        .collect();
    for job in outer {
        if let Err(error) = runtime.block_on(job).and_then(|inner| inner) {
            return refused(begun, error);
        }
    }
    Verdict::Ends(begun.elapsed())
}

/// A task waits for room in its own channel.
fn own_mailbox() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = mpsc::channel();
    let begun = now();
    runtime.spawn(async move {
        let (own, mut mailbox) = channel::channel(1);
        for number in 0..2 {
            own.send(number).await.expect("it is open");
        }
        mailbox.recv().await;
        // Ignored: the row has ended.
        let _ = tells.send(now());
    });
    late(begun, &told)
}

type Request = oneshot::Sender<()>;

/// Two tasks, each of which asks the other to answer a request.
fn call_cycle() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let begun = now();
    let (to_one, one) = channel::unbounded_channel::<Request>();
    let (to_other, other) = channel::unbounded_channel::<Request>();
    for (mut mailbox, next) in [(one, to_other), (other, to_one.clone())] {
        runtime.spawn(async move {
            while let Some(request) = mailbox.recv().await {
                let (reply, answer) = oneshot::channel();
                next.send(reply).expect("it lives");
                // Ignored: the row has ended.
                let _ = (answer.await, request.send(()));
            }
        });
    }
    let (reply, answer) = oneshot::channel();
    to_one.send(reply).expect("it lives");
    match runtime.0.block_on(answer) {
        Ok(()) => Verdict::Ends(begun.elapsed()),
        Err(error) => refused(begun, error),
    }
}

/// The end of a runtime, beside a step and a blocking closure that never return.
fn shutdown() -> Verdict {
    let runtime = rt::builder(WIDTH).build().expect("the system has threads");
    runtime.spawn(async { hold() });
    runtime.spawn_blocking(|| hold());
    block(50 * MILLISECOND);
    let due = now();
    drop(runtime);
    Verdict::Ends(due.elapsed())
}
