//! The order of dispatches, recorded: 20 programs on the test clock with one worker, 10 seeds each.
//!
//! A change that only moves or renames code leaves every hash in [`RECORDED`] as it is. A change of
//! the scheduler may change some of them: record the new values in the same commit, and explain
//! there why the order differs. A failing test prints the table as it would have to be.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::pool::Pool;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::{Barrier, Mutex, RwLock, Select, Semaphore, WaitGroup, channel};
use procession::{Context, Exit, Reply, Scheduler, SpawnOptions, sleep, yield_now};

use crate::seeded::{Trace, builder, program};

type Program = fn(Trace) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! programs {
    ($($name:ident: $hash:literal,)*) => {
        /// Each program with the hash of its steps: the process, and the time.
        const RECORDED: &[(&str, Program, u64)] = &[$((stringify!($name), |trace| Box::pin($name(trace)), $hash),)*];
    };
}

programs! {
    barriers: 0xc93a_8072_1b91_40a1,
    bounded_mailboxes: 0xd2dd_b8f8_142b_2698,
    calls: 0xa017_1fb9_5511_d4de,
    channels: 0xd4c5_80ac_0e73_0512,
    coroutines: 0x4aaf_9af6_929e_4b2b,
    exits: 0x976b_2ef8_62ef_913f,
    intervals: 0x3124_2bc9_d6f6_0117,
    locks: 0x6554_e022_9f96_a2e4,
    mixture: 0x33be_c8e2_3462_e6ab,
    monitors: 0xe2e7_c7bd_0d3a_49ed,
    pairs: 0xae36_8fc6_e498_c904,
    pools: 0x1d44_703b_4c45_747e,
    rendezvous: 0x3b4f_4b19_134f_cff5,
    ring: 0xe6ec_9329_0669_5bb1,
    selects: 0x43b0_8568_94c9_2245,
    semaphores: 0x1555_a8c8_2432_8e01,
    skynet: 0x5fba_2e5a_5f91_607c,
    sleeps: 0x8903_2a48_0368_06d7,
    supervisors: 0x6eef_343f_3116_cd6d,
    yields: 0x4722_8851_632e_1d39,
}

const SEEDS: u64 = 10;
const PROCESSES: u64 = 12;
const ROUNDS: u64 = 20;

/// Starts a process for each number, and waits for all.
async fn each<F>(trace: &Trace, count: u64, process: impl Fn(u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let handles: Vec<_> =
        (0..count).map(|n| procession::spawn(trace.clone().each(process(n)))).collect();
    for handle in handles {
        handle.await.expect("it ends");
    }
}

fn nanoseconds(n: u64) -> Duration {
    Duration::from_nanos(n)
}

async fn yields(trace: Trace) {
    each(&trace, PROCESSES, |n| async move {
        for _ in 0..n * ROUNDS {
            yield_now().await;
        }
    })
    .await;
}

async fn sleeps(trace: Trace) {
    each(&trace, PROCESSES, |n| async move {
        for round in 0..ROUNDS {
            sleep(nanoseconds((n * 7 + round * 3) % 40)).await;
        }
    })
    .await;
}

async fn intervals(trace: Trace) {
    each(&trace, PROCESSES, |n| async move {
        let mut ticks = procession::time::interval(nanoseconds(10 + n));
        for _ in 0..ROUNDS {
            ticks.tick().await;
        }
    })
    .await;
}

async fn pairs(trace: Trace) {
    each(&trace.clone(), PROCESSES, move |_| {
        let trace = trace.clone();
        async move {
            let (to_pong, there) = channel::unbounded();
            let (to_ping, back) = channel::unbounded();
            let pong = procession::spawn(trace.each(async move {
                while let Some(n) = there.recv().await {
                    if to_ping.send(n).await.is_err() {
                        break;
                    }
                }
            }));
            for n in 0..ROUNDS {
                to_pong.send(n).await.expect("the other lives");
                assert_eq!(back.recv().await, Some(n));
            }
            drop(to_pong);
            pong.await.expect("it ends");
        }
    })
    .await;
}

async fn rendezvous(trace: Trace) {
    let (sender, receiver) = channel::bounded(0);
    let takers = trace.clone();
    let taken = procession::spawn(async move {
        each(&takers, PROCESSES, move |_| {
            let receiver = receiver.clone();
            async move { while receiver.recv().await.is_some() {} }
        })
        .await;
    });
    each(&trace, PROCESSES, |n| {
        let sender = sender.clone();
        async move {
            for round in 0..ROUNDS {
                sender.send(n * round).await.expect("they take all");
            }
        }
    })
    .await;
    drop(sender);
    taken.await.expect("it ends");
}

async fn channels(trace: Trace) {
    let (sender, receiver) = channel::bounded(3);
    let takes = procession::spawn(trace.clone().each(async move {
        let mut taken = 0;
        while receiver.recv().await.is_some() {
            taken += 1;
        }
        taken
    }));
    each(&trace, PROCESSES, |n| {
        let sender = sender.clone();
        async move {
            for round in 0..ROUNDS {
                sender.send(n * round).await.expect("it takes all");
            }
        }
    })
    .await;
    drop(sender);
    assert_eq!(takes.await, Ok(PROCESSES * ROUNDS));
}

async fn ring(trace: Trace) {
    let mut next: Option<procession::Address<u64>> = None;
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let (to, trace) = (next.take(), trace.clone());
        let child = procession::start(move |mut cx: Context<u64>| {
            trace.each(async move {
                while let Some(n) = cx.recv().await {
                    if let Some(to) = &to {
                        // The next process may have ended already.
                        let _: Result<(), _> = to.send(n + 1);
                    }
                }
            })
        });
        next = Some(child.address().clone());
        children.push(child);
    }
    for n in 0..ROUNDS {
        next.as_ref().expect("there is one").send(n).expect("it lives");
    }
    for child in children.into_iter().rev() {
        child.cancel();
        child.await.expect("it ends");
    }
}

async fn skynet(trace: Trace) {
    fn node(trace: Trace, depth: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move {
            if depth == 0 {
                return 1;
            }
            let children: Vec<_> = (0..4)
                .map(|_| procession::spawn(trace.clone().each(node(trace.clone(), depth - 1))))
                .collect();
            let mut sum = 0;
            for child in children {
                sum += child.await.expect("it ends");
            }
            sum
        })
    }
    assert_eq!(node(trace, 4).await, 256);
}

async fn selects(trace: Trace) {
    let (left, from_left) = channel::bounded(1);
    let (right, from_right) = channel::bounded(1);
    let takes = procession::spawn(trace.clone().each(async move {
        for _ in 0..2 * PROCESSES * ROUNDS {
            let some = |taken: Option<u64>| assert!(taken.is_some(), "the senders live");
            Select::new().recv(&from_left, some).recv(&from_right, some).await;
        }
    }));
    each(&trace, 2 * PROCESSES, |n| {
        let sender = if n % 2 == 0 { left.clone() } else { right.clone() };
        async move {
            for round in 0..ROUNDS {
                sender.send(round).await.expect("it takes all");
            }
        }
    })
    .await;
    takes.await.expect("it ends");
}

async fn locks(trace: Trace) {
    let sum = Arc::new(Mutex::new(0));
    let table = Arc::new(RwLock::new(0));
    each(&trace, PROCESSES, |n| {
        let (sum, table) = (Arc::clone(&sum), Arc::clone(&table));
        async move {
            for round in 0..ROUNDS {
                *sum.lock().await += 1;
                if (n + round) % 5 == 0 {
                    let mut table = table.write().await;
                    yield_now().await;
                    *table += 1;
                } else {
                    let _table = table.read().await;
                    yield_now().await;
                }
            }
        }
    })
    .await;
    assert_eq!(*sum.lock().await, PROCESSES * ROUNDS);
}

async fn semaphores(trace: Trace) {
    let semaphore = Arc::new(Semaphore::new(4));
    each(&trace, PROCESSES, |n| {
        let semaphore = Arc::clone(&semaphore);
        async move {
            for _ in 0..ROUNDS {
                let _permits = semaphore.acquire(1 + n as usize % 3).await.expect("it stays open");
                sleep(nanoseconds(n)).await;
            }
        }
    })
    .await;
}

async fn barriers(trace: Trace) {
    let barrier = Arc::new(Barrier::new(PROCESSES as usize));
    let group = WaitGroup::new();
    each(&trace, PROCESSES, |n| {
        let (barrier, job) = (Arc::clone(&barrier), group.job());
        async move {
            for _ in 0..ROUNDS {
                sleep(nanoseconds(n)).await;
                barrier.wait().await;
            }
            drop(job);
        }
    })
    .await;
    group.wait().await;
}

async fn calls(trace: Trace) {
    let answers = trace.clone();
    let server = procession::start(move |mut cx: Context<Reply<u64>>| {
        answers.each(async move {
            let mut n = 0;
            while let Some(reply) = cx.recv().await {
                n += 1;
                if n % 7 == 0 {
                    sleep(nanoseconds(50)).await;
                }
                reply.send(n);
            }
        })
    });
    each(&trace, PROCESSES, |n| {
        let address = server.address().clone();
        async move {
            for _ in 0..ROUNDS {
                // Some calls end before the sleep is over.
                let _: Result<u64, _> = address.call(|reply| reply, nanoseconds(n * 10)).await;
            }
        }
    })
    .await;
    server.cancel();
    server.await.expect("it ends");
}

async fn bounded_mailboxes(trace: Trace) {
    let takes = trace.clone();
    let options = SpawnOptions::new().mailbox(2, WhenFull::Wait);
    let server = options.start(move |mut cx: Context<u64>| {
        takes.each(async move { while cx.recv().await.is_some() {} })
    });
    each(&trace, PROCESSES, |n| {
        let address = server.address().clone();
        async move {
            for _ in 0..ROUNDS {
                address.send_wait(n).await.expect("it lives");
            }
        }
    })
    .await;
    server.cancel();
    server.await.expect("it ends");
}

async fn exits(trace: Trace) {
    let mut handles = Vec::new();
    for n in 0..PROCESSES {
        let child = trace.clone();
        let parent = trace.clone().each(async move {
            let child = procession::spawn(child.each(async move {
                sleep(nanoseconds(n % 5)).await;
                procession::process::exit(Exit::failed("as planned"))
            }));
            procession::process::link(child.pid());
            sleep(nanoseconds(100)).await;
            let _: Result<(), Exit> = child.await;
        });
        handles.push(procession::spawn(parent));
    }
    for handle in handles {
        handle.await.expect_err("the link ends it");
    }
}

async fn monitors(trace: Trace) {
    let mut handles = Vec::new();
    for n in 0..PROCESSES {
        let child = trace.clone();
        let watches = trace.clone();
        handles.push(procession::start(move |mut cx: Context<()>| {
            watches.each(async move {
                for round in 0..ROUNDS {
                    let child =
                        procession::spawn(child.clone().each(sleep(nanoseconds((n + round) % 9))));
                    let monitor = cx.monitor(child.pid());
                    cx.down(monitor).await;
                }
            })
        }));
    }
    for handle in handles {
        handle.await.expect("it ends");
    }
}

async fn supervisors(trace: Trace) {
    let mut supervisor = Supervisor::one_for_one().intensity(1000, Duration::from_secs(1));
    for n in 0..PROCESSES {
        let trace = trace.clone();
        supervisor = supervisor.child(ChildSpec::new(n.to_string(), move |_: Context<()>| {
            trace.clone().each(async move {
                sleep(nanoseconds(10 + n)).await;
                procession::process::exit(Exit::failed("as planned"))
            })
        }));
    }
    let running = supervisor.try_start().await.expect("all start");
    sleep(nanoseconds(300)).await;
    running.reference().cancel();
    running.await;
}

async fn pools(trace: Trace) {
    let pool = Arc::new(Pool::builder().capacity(3).build_async().expect("these are valid"));
    each(&trace.clone(), PROCESSES, move |n| {
        let (pool, trace) = (Arc::clone(&pool), trace.clone());
        async move {
            for _ in 0..ROUNDS {
                let job = trace.clone().each(sleep(nanoseconds(n)));
                pool.submit(job).await.expect("it is open").await.expect("it ends");
            }
        }
    })
    .await;
}

async fn coroutines(trace: Trace) {
    let mut handles = Vec::new();
    for n in 0..PROCESSES {
        let trace = trace.clone();
        let function = move |_: procession::coroutine::Context<()>| {
            for round in 0..ROUNDS {
                trace.note();
                match (n + round) % 3 {
                    0 => procession::coroutine::sleep(nanoseconds(n)),
                    _ => procession::coroutine::yield_now(),
                }
            }
        };
        handles.push(
            procession::SpawnOptions::new()
                .try_start_coroutine(function)
                .expect("they are enabled"),
        );
    }
    for handle in handles {
        handle.await.expect("it ends");
    }
}

/// The program of the other tests with seeds: messages, calls, machines, commands and sleeps.
async fn mixture(trace: Trace) {
    program(trace).await;
}

/// FNV-1a, 64 bits.
fn hash(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn hash_of(program: Program) -> u64 {
    (0..SEEDS).fold(0xcbf2_9ce4_8422_2325, |sum, seed| {
        // Half of the runs use the usual order, the other half is shuffled.
        let builder = if seed % 2 == 0 { builder(seed) } else { builder(seed).shuffled() };
        // SAFETY: the coroutines of these programs keep no pointer to anything that outlives them,
        // and all of them end.
        let builder = unsafe { builder.enable_coroutines() };
        let scheduler: Scheduler = builder.build().expect("it starts no thread");
        let trace = Trace::new(&scheduler);
        let traced = trace.clone().each(program(trace.clone()));
        scheduler.spawn(traced).join().expect("it ends");
        scheduler.run_until_idle();
        trace.steps().iter().fold(sum, |sum, (process, at)| {
            hash(hash(sum, process.as_bytes()), &at.as_nanos().to_le_bytes())
        })
    })
}

#[test]
fn programs_are_dispatched_in_the_recorded_order() {
    let mut table = String::new();
    let mut differ = Vec::new();
    for (name, program, recorded) in RECORDED {
        let found = hash_of(*program);
        table += &format!("    {name}: {found:#018x},\n");
        if found != *recorded {
            differ.push(*name);
        }
    }
    assert!(differ.is_empty(), "another order in {differ:?}; the table would be\n{table}");
}
