//! The cost of a queue for its owner, without a thief.

use std::hint::black_box;

use crate::deques::{
    CrossbeamFifo, CrossbeamLifo, Deque, ProcessionFifo, ProcessionLifo, St3Fifo, St3Lifo,
};
use crate::scenario::{Family, Run, Scale, Scenario, Tally, Unit, timed};

/// The number of items that crossbeam's queue holds before it grows.
const BURST: usize = 64;
const BURSTS: usize = 20_000;

pub(crate) fn family() -> Family {
    Family {
        rivals: &["procession", "crossbeam-deque", "st3"],
        definitions: &[
            (
                "owner/push_pop",
                "The owner pushes 64 items and pops 64, newest first; thieves could steal all, but there are none.",
            ),
            (
                "owner/fifo",
                "The owner pushes 64 items and pops 64, oldest first; thieves could steal all, but there are none.",
            ),
        ],
        scenarios: vec![
            scenario(
                "owner/push_pop",
                [push_pop::<ProcessionLifo>, push_pop::<CrossbeamLifo>, push_pop::<St3Lifo>],
            ),
            scenario(
                "owner/fifo",
                [push_pop::<ProcessionFifo>, push_pop::<CrossbeamFifo>, push_pop::<St3Fifo>],
            ),
        ],
    }
}

fn scenario(name: &str, runs: [fn(Scale) -> Vec<f64>; 3]) -> Scenario {
    Scenario {
        name: name.to_owned(),
        units: &[Unit::Cost("ns per push and pop")],
        runs: runs.map(|run| Box::new(run) as Run).into(),
    }
}

fn push_pop<D: Deque>(scale: Scale) -> Vec<f64> {
    let queue = D::default();
    let stealer = black_box(queue.stealer());
    let bursts = scale.count(BURSTS);
    let (ns, tally) = timed(|| {
        let mut tally = Tally::default();
        for burst in 0..bursts {
            for i in 0..BURST {
                assert!(queue.push(black_box(burst * BURST + i)), "a burst fits");
            }
            for _ in 0..BURST {
                tally.add(queue.pop().expect("there is no thief"));
            }
        }
        tally
    });
    drop(stealer);
    tally.assert_each_below(bursts * BURST);
    vec![ns / (bursts * BURST) as f64]
}
