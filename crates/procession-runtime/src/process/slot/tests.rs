use crate::Scheduler;
use crate::scheduler::current;

#[test]
fn messages_are_counted_beyond_the_width_of_the_count() {
    let scheduler = Scheduler::builder().test_clock().build().expect("the system has threads");
    let round = u64::from(u32::MAX) + 1;
    let messages = || {
        let snapshot = scheduler.snapshot();
        snapshot.messages_received
            + snapshot.processes.iter().map(|process| u64::from(process.received)).sum::<u64>()
    };
    let counts = scheduler.spawn(async {
        let own = current::current().expect("this is a process");
        own.count_received(u32::MAX);
        own.count_received(2);
        crate::yield_now().await;
        own.uncount_received();
        own.uncount_received();
        std::future::pending::<()>().await;
    });
    scheduler.run_until_idle();
    assert_eq!(messages(), round - 1);
    drop(counts);
    scheduler.block_on(scheduler.shutdown(std::time::Duration::from_secs(1)));
    assert_eq!(messages(), round - 1);
}

/// Goal: a program that forgets 2^32 references to a process does no harm. Method: the count of the
/// slot begins near the edge.
#[test]
fn a_slot_with_too_many_references_is_lost_and_counted() {
    const NEARLY_ALL: u32 = (1 << 31) - 10;
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let child = scheduler.start(|mut cx: crate::Context<u32>| async move { cx.recv().await });
    let (address, handle) = child.into_parts();
    let pid = address.pid();
    crate::scheduler::reach::find(pid).expect("it lives").pins.again(NEARLY_ALL);
    for _ in 0..100 {
        std::mem::forget(address.clone());
    }
    assert_eq!(address.pid(), pid);
    let kept: Vec<_> = (0..100).map(|_| address.clone()).collect();
    drop(kept);
    assert_eq!(scheduler.snapshot().slots_lost, 0, "its process lives");
    address.send(7).expect("it lives");
    assert_eq!(handle.join(), Ok(Some(7)));
    assert_eq!(scheduler.snapshot().slots_lost, 1);
    assert!(address.send(8).expect_err("it has ended").is_ended());
    let others: Vec<_> =
        (0..2000).map(|_| scheduler.start(|_: crate::Context<String>| async {})).collect();
    assert!(others.iter().all(|other| other.pid().slot() != pid.slot()), "nobody gets its slot");
    assert_eq!(address.pid(), pid);
    drop(others);
    assert!(scheduler.block_on(scheduler.shutdown(std::time::Duration::from_secs(1))).is_empty());
}
