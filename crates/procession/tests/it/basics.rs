use std::time::Duration;

use procession::{Context, Reply, Scheduler};

enum Count {
    Add(u64),
    Get(Reply<u64>),
}

#[test]
fn the_program_of_the_readme_runs() {
    procession::run(async {
        let counter = procession::start(|mut cx: Context<Count>| async move {
            let mut n = 0;
            while let Some(message) = cx.recv().await {
                match message {
                    Count::Add(k) => n += k,
                    Count::Get(reply) => reply.send(n),
                }
            }
        });
        counter.send(Count::Add(2)).expect("it lives");
        let n = counter.call(Count::Get, Duration::from_secs(60)).await.expect("it replies");
        let doubled = procession::spawn(async move { n * 2 }).await.expect("it ends");
        assert_eq!(doubled, 4);
    });
}

#[test]
fn many_processes_all_end() {
    for width in [1, 2, 4] {
        let scheduler = Scheduler::builder().worker_threads(width).build().expect("threads");
        let sum = scheduler.block_on(async {
            let handles: Vec<_> = (0..10_000u64)
                .map(|n| {
                    procession::spawn(async move {
                        procession::yield_now().await;
                        n
                    })
                })
                .collect();
            let mut sum = 0;
            for handle in handles {
                sum += handle.await.expect("it ends");
            }
            sum
        });
        assert_eq!(sum, 10_000 * 9_999 / 2);
        let snapshot = scheduler.snapshot();
        assert_eq!((snapshot.spawned, snapshot.ended), (10_000, 10_000));
    }
}
