//! The paths whose instructions `.ci/instructions` counts: on the test clock and one thread, so that two runs do the same.
//!
//! Usage: `instructions spawn|send COUNT`

use std::env;

use procession::{Context, Scheduler};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Messages after which the sender waits for the receiver, so that the mailbox stays short.
const BATCH: u64 = 64;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    // Cargo's own flag, if it is run without any other.
    let [path, count] = match arguments.as_slice() {
        [path, count, ..] => [path.as_str(), count.as_str()],
        _ => ["spawn", "1000"],
    };
    let count = count.parse().expect("COUNT is a number");
    let scheduler = Scheduler::builder().width(1).test_clock().build().expect("the system has threads");
    let done = match path {
        "spawn" => scheduler.block_on(async { scheduler.spawn(spawn_and_end(count)).await }),
        "send" => scheduler.block_on(async { scheduler.spawn(send_and_receive(count)).await }),
        other => panic!("unknown path {other}"),
    };
    assert_eq!(done, Ok(count));
    scheduler.run_until_idle();
    let snapshot = scheduler.snapshot();
    assert_eq!(snapshot.messages_sent, snapshot.messages_received);
}

/// Empty processes, of which few are there at once.
async fn spawn_and_end(count: u64) -> u64 {
    for number in 0..count {
        drop(procession::spawn(async {}));
        if number % BATCH == 0 {
            procession::yield_now().await;
        }
    }
    count
}

async fn send_and_receive(count: u64) -> u64 {
    let (receiver, received) = procession::start(move |mut cx: Context<u64>| async move {
        let mut sum = 0;
        for _ in 0..count {
            sum += cx.receive().await.expect("nobody cancels it");
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
