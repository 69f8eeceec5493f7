//! The clinic on Procession.

mod rows;
mod verdict;

use std::sync::mpsc;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::pool::{Pool, Queue};
use procession::{Context, Reply, Scheduler, SpawnOptions, start};
use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use verdict::{MILLISECOND, Row, Verdict, WIDTH, block, hold, late, now, refused};

/// The names that the rows need.
mod rt {
    use std::future::Future;

    use procession::Scheduler;
    pub(crate) use procession::sync::channel::{Receiver, Sender, bounded as channel};
    pub(crate) use procession::sync::{Mutex, RwLock};
    pub(crate) use procession::{sleep, yield_now};

    use crate::verdict::{MILLISECOND, named};

    pub(crate) struct Runtime(Scheduler);

    impl Runtime {
        pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
            self.0.spawn(future).detach();
        }
    }

    /// A scheduler that stays until the program ends, or until it reports a cycle of waits. The row
    /// is over then, because no cycle ends by itself.
    pub(crate) fn runtime(workers: usize) -> &'static Runtime {
        let scheduler = Scheduler::builder()
            .worker_threads(workers)
            .wait_cycle_after(100 * MILLISECOND)
            .on_wait_cycle(|_| named("the watchdog reports a cycle of waits"))
            .build();
        Box::leak(Box::new(Runtime(scheduler.expect("the system has threads"))))
    }

    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        procession::spawn(future).detach();
    }

    pub(crate) async fn send<T: Send>(to: &Sender<T>, message: T) -> bool {
        to.send(message).await.is_ok()
    }

    pub(crate) async fn receive<T: Send>(from: &mut Receiver<T>) -> Option<T> {
        from.recv().await
    }
}

const ROWS: [Row; 7] = [
    ("refused_thread", refused_thread),
    ("nested_blocking", nested_blocking),
    ("own_pool", own_pool),
    ("own_mailbox", own_mailbox),
    ("call_cycle", call_cycle),
    ("flooded_timer", flooded_timer),
    ("shutdown", shutdown),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("price") {
        let messages = arguments.next().and_then(|count| count.parse().ok());
        return price(messages.expect("usage: PROGRAM price MESSAGES"));
    }
    verdict::main(&[&rows::ROWS[..], &ROWS].concat())
}

/// Prints the time of a message of 64 bytes from one of ten senders to a receiver, in nanoseconds.
/// Most wake-ups go through LIFO slots. `run` compares it with a build without thieves of slots.
fn price(messages: u64) {
    const SENDERS: u64 = 10;
    let scheduler = scheduler();
    let begun = now();
    let received = scheduler.block_on(async {
        let (sender, receiver) = procession::sync::channel::bounded::<[u8; 64]>(100);
        for number in 0..SENDERS {
            let sender = sender.clone();
            let send = async move {
                for _ in 0..messages / SENDERS {
                    sender.send([number as u8; 64]).await.expect("it is open");
                }
            };
            procession::spawn(send).detach();
        }
        drop(sender);
        let receive = async move {
            let mut received = 0;
            while receiver.recv().await.is_some() {
                received += 1;
            }
            received
        };
        procession::spawn(receive).await.expect("nothing panics")
    });
    assert_eq!(received, messages / SENDERS * SENDERS, "each message arrives");
    let each = begun.elapsed().as_nanos() as f64 / received as f64;
    use std::io::Write;
    // Ignored: if standard output is closed, nobody reads the price.
    let _ = writeln!(std::io::stdout(), "{each:.1}");
}

/// The system refuses the thread of a closure that blocks.
fn refused_thread() -> Verdict {
    let scheduler = scheduler();
    block(200 * MILLISECOND);
    limit_memory();
    let begun = now();
    match scheduler.block_on(async { procession::spawn_blocking(|| ()).await }) {
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

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(WIDTH).build().expect("the system has threads")
}

/// Each thread of a pool waits for a job of the same pool.
fn nested_blocking() -> Verdict {
    let pool = Pool::builder().capacity(WIDTH).queue(Queue::Unbounded).build();
    let pool = pool.expect("it is in range");
    let begun = now();
    let outer: Vec<_> = (0..2 * WIDTH)
        .map(|_| {
            let inside = pool.clone();
            pool.submit(move || {
                block(50 * MILLISECOND);
                inside
                    .submit(|| ())
                    .map_err(|error| error.to_string())?
                    .join()
                    .map_err(|error| error.to_string())
            })
        })
        .collect();
    for job in outer {
        match job.expect("it is open").join().expect("nothing panics") {
            Ok(()) => {}
            Err(error) => return refused(begun, error),
        }
    }
    Verdict::Ends(begun.elapsed().saturating_sub(100 * MILLISECOND))
}

/// A job waits for room in its own pool, which is full because of this job.
fn own_pool() -> Verdict {
    let pool = Pool::builder().capacity(1).queue(Queue::HandOff).build().expect("it is in range");
    let (inside, begun) = (pool.clone(), now());
    let job =
        pool.submit(move || inside.submit(|| ()).map(drop).map_err(|error| error.to_string()));
    match job.expect("it is open").join().expect("nothing panics") {
        Ok(()) => Verdict::Ends(begun.elapsed()),
        Err(error) => refused(begun, error),
    }
}

/// A process waits for room in its own mailbox.
fn own_mailbox() -> Verdict {
    let scheduler = scheduler();
    let options = SpawnOptions::new().on(&scheduler).mailbox(1, WhenFull::Wait);
    let begun = now();
    let process = options.start(|mut cx: Context<u32>| async move {
        let own = cx.address();
        own.send_wait(1).await.map_err(|error| error.to_string())?;
        own.send_wait(2).await.map_err(|error| error.to_string())?;
        cx.recv().await;
        Ok::<_, String>(())
    });
    match scheduler.block_on(process) {
        Ok(Ok(())) => Verdict::Ends(begun.elapsed()),
        Ok(Err(error)) => refused(begun, error),
        Err(exit) => refused(begun, exit),
    }
}

enum Message {
    Next(procession::Address<Message>),
    Ask(Reply<Result<(), String>>),
}

/// Two servers, each of which calls the other to answer a call.
fn call_cycle() -> Verdict {
    let scheduler = scheduler();
    let begun = now();
    let answer = scheduler.block_on(async {
        let server = |mut cx: Context<Message>| async move {
            let mut next = None;
            while let Some(message) = cx.recv().await {
                match message {
                    Message::Next(address) => next = Some(address),
                    Message::Ask(reply) => {
                        let next = next.as_ref().expect("it was told first");
                        let inner = next.call(Message::Ask, Duration::from_secs(1)).await;
                        reply.send(inner.unwrap_or_else(|error| Err(error.to_string())));
                    }
                }
            }
        };
        let (one, other) = (start(server), start(server));
        one.send(Message::Next(other.address().clone())).expect("it lives");
        other.send(Message::Next(one.address().clone())).expect("it lives");
        one.call(Message::Ask, Duration::from_secs(60)).await
    });
    match answer {
        Ok(Ok(())) => Verdict::Ends(begun.elapsed()),
        Ok(Err(error)) => refused(begun, error),
        Err(error) => refused(begun, error),
    }
}

/// The mailbox of a process is never empty. A message to itself is due at a time.
fn flooded_timer() -> Verdict {
    let scheduler = scheduler();
    let (tells, told) = mpsc::channel();
    let due = now() + 50 * MILLISECOND;
    let flooded = scheduler.start(move |mut cx: Context<bool>| async move {
        let own = cx.address().clone();
        own.send_after(50 * MILLISECOND, true).expect("it lives");
        (0..1000).for_each(|_| own.send(false).expect("it lives"));
        while let Some(is_timer) = cx.recv().await {
            if is_timer {
                // Ignored: the row has ended.
                let _ = tells.send(now());
            }
            own.send(false).expect("it lives");
        }
    });
    let verdict = late(due, &told);
    flooded.kill();
    verdict
}

/// A shutdown, beside a step and a blocking closure that never return.
fn shutdown() -> Verdict {
    let scheduler = scheduler();
    scheduler.spawn(async { hold() }).detach();
    scheduler.spawn(async { drop(procession::spawn_blocking(|| hold()).await) }).detach();
    block(50 * MILLISECOND);
    let deadline = 500 * MILLISECOND;
    let due = now() + deadline;
    let unfinished = scheduler.block_on(scheduler.shutdown(deadline));
    assert!(!unfinished.is_empty(), "the step that blocks is reported");
    drop(scheduler);
    Verdict::Ends(now().saturating_duration_since(due))
}
