use crate::{Scheduler, here};

#[test]
fn messages_are_counted_beyond_the_width_of_the_count() {
    let scheduler = Scheduler::builder().test_clock().build().expect("the system has threads");
    let round = u64::from(u32::MAX) + 1;
    let messages = || {
        let snapshot = scheduler.snapshot();
        snapshot.messages_received + snapshot.processes.iter().map(|process| u64::from(process.received)).sum::<u64>()
    };
    let counts = scheduler.spawn(async {
        let own = here::current().expect("this is a process");
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
