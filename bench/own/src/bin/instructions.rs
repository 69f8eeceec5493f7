//! The paths of which `.ci/instructions` counts the instructions. They run on the test clock and
//! one thread, so that two runs do the same.
//!
//! Usage: `instructions spawn|send|yield|pingpong|ring|skynet COUNT`

use std::env;
use std::pin::Pin;

use procession::{Address, Context, Scheduler};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of messages after which the sender waits for the receiver, so that the mailbox stays
/// short.
const BATCH: u64 = 64;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    // Cargo's own flag, if the program is run without others.
    let [path, count] = match arguments.as_slice() {
        [path, count, ..] => [path.as_str(), count.as_str()],
        _ => ["spawn", "1000"],
    };
    let count = count.parse().expect("COUNT is a number");
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .build()
        .expect("the system has threads");
    let done = match path {
        "spawn" => scheduler.block_on(async { scheduler.spawn(spawn_and_end(count)).await }),
        "send" => scheduler.block_on(async { scheduler.spawn(send_and_receive(count)).await }),
        "yield" => scheduler.block_on(async { scheduler.spawn(yield_in_turn(count)).await }),
        "pingpong" => scheduler.block_on(async { scheduler.spawn(pass_around(2, count)).await }),
        "skynet" => scheduler.block_on(async { scheduler.spawn(skynet(count)).await }),
        "ring" => scheduler.block_on(async { scheduler.spawn(pass_around(503, count)).await }),
        other => panic!("unknown path {other}"),
    };
    assert_eq!(done, Ok(count));
    scheduler.run_until_idle();
    let snapshot = scheduler.snapshot();
    assert_eq!(snapshot.messages_sent, snapshot.messages_received);
}

/// Spawns empty processes, few of which exist at once.
async fn spawn_and_end(count: u64) -> u64 {
    for number in 0..count {
        drop(procession::spawn(async {}));
        if number % BATCH == 0 {
            procession::yield_now().await;
        }
    }
    count
}

/// Runs a thousand processes that yield.
async fn yield_in_turn(count: u64) -> u64 {
    const PROCESSES: u64 = 1000;
    let yields = |_| {
        procession::spawn(async move {
            for _ in 0..count / PROCESSES {
                procession::yield_now().await;
            }
        })
    };
    for process in (0..PROCESSES).map(yields).collect::<Vec<_>>() {
        process.await.expect("it ends");
    }
    count
}

/// Runs processes that start ten others each, and wait for them.
fn skynet(leaves: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if leaves >= 10 {
            let children: Vec<_> =
                (0..10).map(|_| procession::spawn(skynet(leaves / 10))).collect();
            for child in children {
                child.await.expect("it ends");
            }
        }
        leaves
    })
}

/// Sends a message around a ring of processes.
async fn pass_around(processes: u64, count: u64) -> u64 {
    // Each process learns of the next one by its first message, and passes the others on.
    let member = move |mut cx: Context<Passed>| async move {
        let Passed(_, next) = cx.recv().await.expect("nobody cancels it");
        let next = next.expect("the first message brings it");
        while let Some(Passed(left, _)) = cx.recv().await {
            if left == 0 || next.send(Passed(left - 1, None)).is_err() || left <= processes {
                break;
            }
        }
    };
    let ring: Vec<_> = (0..processes).map(|_| procession::start(member)).collect();
    for (number, process) in ring.iter().enumerate() {
        let next = ring[(number + 1) % ring.len()].address().clone();
        process.send(Passed(0, Some(next))).expect("it waits for it");
    }
    ring[0].send(Passed(count, None)).expect("it waits for it");
    for process in ring {
        process.await.expect("it ends");
    }
    count
}

async fn send_and_receive(count: u64) -> u64 {
    let (receiver, received) = procession::start(move |mut cx: Context<u64>| async move {
        let mut sum = 0;
        for _ in 0..count {
            sum += cx.recv().await.expect("nobody cancels it");
        }
        sum
    })
    .into_parts();
    for number in 0..count {
        receiver.send(1).expect("it receives until the last");
        if number % BATCH == 0 {
            procession::yield_now().await;
        }
    }
    received.await.expect("it does not panic")
}

/// The number of hops that are left, or the next member of the ring.
struct Passed(u64, Option<Address<Passed>>);
