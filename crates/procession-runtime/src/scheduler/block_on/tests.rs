use std::sync::mpsc;
use std::thread;

use procession_protocols::scheduler::seat_id::SeatId;

use crate::sync::channel;
use crate::{Context, Reply, Scheduler};

/// Goal: a caller without a seat is registered with the scheduler once, and only while it waits.
/// Method: one thread has the seat; another waits beside it and is woken many times.
#[test]
fn a_caller_without_a_seat_is_kept_once() {
    const CALLS: u32 = 1000;
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .build()
        .expect("it starts no thread");
    let waiting = || scheduler.shared().callers.waiting();
    let (sits, sat) = channel::bounded::<()>(1);
    let (stop, stopped) = channel::bounded::<()>(1);
    let echo = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        while let Some(reply) = cx.recv().await {
            reply.send(1);
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            scheduler.block_on(async {
                sits.send(()).await.expect("the test waits for it");
                let _ = stopped.recv().await;
            });
        });
        // In another scheduler, so that this thread does not take the seat.
        Scheduler::global().block_on(async { sat.recv().await.expect("the other sits") });
        scheduler.block_on(async {
            for _ in 0..CALLS {
                let reply = echo.call(|reply| reply, std::time::Duration::from_secs(3600)).await;
                assert_eq!(reply.ok(), Some(1));
                assert!(waiting() <= 1, "it is kept once");
            }
        });
        assert_eq!(waiting(), 0, "it is forgotten when it has what it waits for");
        stop.try_send(()).expect("there is room");
    });
    drop(echo);
}

/// Goal: a process may wait for its own scheduler while another thread is in a step without a
/// permit. Method: the test takes the permit of a step that waits for the test.
#[test]
fn a_step_without_a_permit_will_return() {
    let builder = Scheduler::builder().worker_threads(2).max_threads(2);
    let scheduler = builder.build().expect("the system has threads");
    let (begins, begun) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let slow = scheduler.spawn(async move {
        begins.send(()).expect("the test waits for it");
        held.recv().unwrap_or_default();
    });
    begun.recv().expect("it begins");
    let idle = &scheduler.shared().workforce.idle;
    assert!([SeatId(0), SeatId(1)].map(|seat| idle.revoke(seat)).contains(&true));
    let asks = scheduler.spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.try_block_on(scheduler.spawn(async { 7 })).map_err(drop) }
    });
    while scheduler.snapshot().blocking_sections == 0 {
        thread::yield_now();
    }
    drop(release);
    assert_eq!(asks.join().expect("it does not panic").map(|seven| seven.expect("it ends")), Ok(7));
    slow.join().expect("it does not panic");
}
