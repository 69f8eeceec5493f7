//! The same seed, the same run.

use procession_sim::{Check, Outcome, Strategy};

use crate::counters;

fn run(strategy: Strategy, workers: usize) -> Outcome {
    Check::new().seeds(0..3).workers(workers..=workers).strategy(strategy).run(|sim| async move {
        let sum = counters(&sim, 8, 20).await;
        sim.always("each message is counted once", sum == 160);
    })
}

#[test]
fn the_same_seed_is_the_same_run_with_any_number_of_workers() {
    for workers in [1, 2, 4, 64] {
        for strategy in [Strategy::Portfolio, Strategy::Random, Strategy::Priorities] {
            let first = run(strategy, workers);
            for _ in 0..3 {
                assert_eq!(run(strategy, workers), first, "{workers} workers, {strategy:?}");
            }
        }
    }
}
