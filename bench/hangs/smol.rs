//! The clinic on smol: an `Executor` on threads of its own, as the documentation shows it.

mod rows;
mod verdict;

use std::sync::{Arc, Barrier, mpsc};

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use verdict::{MILLISECOND, Row, Verdict, WIDTH, block, hold, late, now, refused};

/// The names that the rows need.
mod rt {
    use std::future::{Future, pending};
    use std::sync::OnceLock;
    use std::time::Duration;

    use smol::Executor;
    pub(crate) use smol::channel::{Receiver, Sender, bounded as channel};
    pub(crate) use smol::future::yield_now;
    pub(crate) use smol::lock::{Mutex, RwLock};

    static EXECUTOR: OnceLock<Executor<'static>> = OnceLock::new();

    pub(crate) struct Runtime;

    impl Runtime {
        pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
            spawn(future);
        }
    }

    /// Starts the workers, which stay until the program ends.
    pub(crate) fn runtime(workers: usize) -> &'static Runtime {
        let executor = EXECUTOR.get_or_init(Executor::new);
        for _ in 0..workers {
            std::thread::spawn(|| smol::block_on(executor.run(pending::<()>())));
        }
        &Runtime
    }

    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        EXECUTOR.get().expect("it runs").spawn(future).detach();
    }

    pub(crate) async fn sleep(duration: Duration) {
        smol::Timer::after(duration).await;
    }

    pub(crate) async fn send<T: Send>(to: &Sender<T>, message: T) -> bool {
        to.send(message).await.is_ok()
    }

    pub(crate) async fn receive<T: Send>(from: &mut Receiver<T>) -> Option<T> {
        from.recv().await.ok()
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
    rt::runtime(WIDTH);
    block(200 * MILLISECOND);
    limit_memory();
    let begun = now();
    smol::block_on(smol::unblock(|| ()));
    Verdict::Ends(begun.elapsed())
}

/// Leaves no room for the stack of another thread, which `rows.toml` makes large.
fn limit_memory() {
    let stated = std::fs::read_to_string("/proc/self/statm").expect("there is a /proc");
    let pages = stated.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let used = pages.expect("it begins with a number") * page_size() as u64;
    let limit = Rlimit { current: Some(used + (32 << 20)), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).expect("the soft limit is ours");
}

/// Each thread for blocking closures waits for another such closure. `rows.toml` sets the number
/// of threads.
fn nested_blocking() -> Verdict {
    let (begun, at_once) = (now(), Arc::new(Barrier::new(WIDTH)));
    let outer: Vec<_> = (0..WIDTH)
        .map(|_| {
            let at_once = Arc::clone(&at_once);
            smol::unblock(move || {
                at_once.wait();
                smol::block_on(smol::unblock(|| ()));
            })
        })
        .collect();
    outer.into_iter().for_each(smol::block_on);
    Verdict::Ends(begun.elapsed())
}

/// A task waits for room in its own channel.
fn own_mailbox() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let (tells, told) = mpsc::channel();
    let begun = now();
    runtime.spawn(async move {
        let (own, mailbox) = rt::channel(1);
        for number in 0..2 {
            own.send(number).await.expect("it is open");
        }
        mailbox.recv().await.expect("it is open");
        // Ignored: the row has ended.
        let _ = tells.send(now());
    });
    late(begun, &told)
}

type Request = smol::channel::Sender<()>;

/// Two tasks, each of which asks the other to answer a request.
fn call_cycle() -> Verdict {
    let runtime = rt::runtime(WIDTH);
    let begun = now();
    let (to_one, one) = smol::channel::unbounded::<Request>();
    let (to_other, other) = smol::channel::unbounded::<Request>();
    for (mailbox, next) in [(one, to_other), (other, to_one.clone())] {
        runtime.spawn(async move {
            while let Ok(request) = mailbox.recv().await {
                let (reply, answer) = rt::channel(1);
                next.send(reply).await.expect("it lives");
                // Ignored: the row has ended.
                let _ = (answer.recv().await, request.send(()).await);
            }
        });
    }
    let (reply, answer) = rt::channel(1);
    match smol::block_on(async {
        to_one.send(reply).await.expect("it lives");
        answer.recv().await
    }) {
        Ok(()) => Verdict::Ends(begun.elapsed()),
        Err(error) => refused(begun, error),
    }
}

/// The end of a program, beside a step and a blocking closure that never return.
fn shutdown() -> Verdict {
    rt::runtime(WIDTH).spawn(async { hold() });
    smol::unblock(|| hold()).detach();
    block(50 * MILLISECOND);
    // Nothing waits for the threads of an executor.
    Verdict::Ends(std::time::Duration::ZERO)
}
