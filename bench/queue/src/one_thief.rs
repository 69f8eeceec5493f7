//! The cost that an owner and a thief cause each other.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::thread;

use procession_queue::Steal;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Release};

use crate::deques::{
    CrossbeamFifo, CrossbeamLifo, Deque, ProcessionFifo, ProcessionLifo, St3Fifo, St3Lifo,
};
use crate::scenario::{Apart, Family, Run, Scale, Scenario, Tally, Unit, timed};

/// The number of items that crossbeam's queue holds before it grows.
const BURST: usize = 64;
const BURSTS: usize = 15_000;

pub(crate) fn family() -> Family {
    Family {
        rivals: &["procession", "crossbeam-deque", "st3"],
        definitions: &[
            (
                "one_thief/lifo",
                "An owner pushes 64 items, pops newest first until it finds none, and so on, while another thread \
                 steals half and drains it as fast as it can; elapsed time by all items, stolen or not, and the \
                 part that was stolen.",
            ),
            ("one_thief/fifo", "The same, with owners that pop oldest first."),
        ],
        scenarios: vec![
            scenario(
                "one_thief/lifo",
                [one_thief::<ProcessionLifo>, one_thief::<CrossbeamLifo>, one_thief::<St3Lifo>],
            ),
            scenario(
                "one_thief/fifo",
                [one_thief::<ProcessionFifo>, one_thief::<CrossbeamFifo>, one_thief::<St3Fifo>],
            ),
        ],
    }
}

fn scenario(name: &str, runs: [fn(Scale) -> Vec<f64>; 3]) -> Scenario {
    Scenario {
        name: name.to_owned(),
        units: &[
            Unit::Cost("ns per item"),
            Unit::Fact("% stolen"),
            Unit::Fact("items per steal"),
            Unit::Fact("refused pushes per 1000 items"),
        ],
        runs: runs.map(|run| Box::new(run) as Run).into(),
    }
}

struct Loot {
    tally: Tally,
    steals: usize,
}

/// Steals and drains until `finished`.
fn rob<D: Deque>(stealer: &D::Stealer, finished: &AtomicBool) -> Loot {
    let thief = D::default();
    let mut loot = Loot { tally: Tally::default(), steals: 0 };
    loop {
        // Ordering: Acquire pairs with the Release of the owner; a queue that is found empty
        // afterwards stays empty.
        let last = finished.load(Acquire);
        match thief.steal_half(stealer) {
            Steal::Success(item) => {
                loot.steals += 1;
                loot.tally.add(item);
                while let Some(item) = thief.pop() {
                    loot.tally.add(item);
                }
            }
            Steal::Empty if last => return loot,
            Steal::Empty | Steal::Retry => spin_loop(),
        }
    }
}

/// Pushes and pops all bursts. Returns what was popped, and the number of pushes that found no room
/// and were tried again.
fn own<D: Deque>(queue: &D, bursts: usize) -> (Tally, usize) {
    let mut popped = Tally::default();
    let mut refused = 0;
    for burst in 0..bursts {
        for i in 0..BURST {
            while !queue.push(black_box(burst * BURST + i)) {
                refused += 1;
                spin_loop();
            }
        }
        while let Some(item) = queue.pop() {
            popped.add(item);
        }
    }
    (popped, refused)
}

fn one_thief<D: Deque>(scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(D::default());
    let stealer = queue.stealer();
    let bursts = scale.count(BURSTS);
    let Apart(finished) = &Apart(AtomicBool::new(false));
    let start = &Barrier::new(2);
    let (ns, (popped, refused, loot)) = thread::scope(|scope| {
        let thief = scope.spawn(move || {
            start.wait();
            rob::<D>(&stealer, finished)
        });
        start.wait();
        timed(|| {
            let (popped, refused) = own(queue, bursts);
            // Ordering: Release pairs with the Acquire in `rob`.
            finished.store(true, Release);
            (popped, refused, thief.join().expect("a thief does not panic"))
        })
    });
    let items = bursts * BURST;
    popped.and(loot.tally).assert_each_below(items);
    vec![
        ns / items as f64,
        100.0 * loot.tally.count as f64 / items as f64,
        loot.tally.count as f64 / loot.steals.max(1) as f64,
        1000.0 * refused as f64 / items as f64,
    ]
}
