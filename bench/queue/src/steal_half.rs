//! The cost of stealing half of a queue while nothing else uses it.
//!
//! One thread does everything, so the stolen items are in its own first-level cache. This measures
//! the instructions and atomic operations of a steal. `one_thief` adds the travel of cache lines.

use std::array;
use std::hint::black_box;

use procession_queue::Steal;

use crate::deques::{
    CrossbeamFifo, CrossbeamLifo, Deque, ProcessionFifo, ProcessionLifo, St3Fifo, St3Lifo,
};
use crate::scenario::{Family, Run, Scale, Scenario, Spread, Tally, Unit, timed};

const LENGTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Number of steals that share one reading of the clock. More would be more precise, but a
/// first-level cache holds only the slots of eight victims of 256 and of their thieves.
const VICTIMS: usize = 8;

/// Number of items that are pushed in a run, unless that makes too few or too many steals.
const ITEMS: usize = 400_000;
const PASSES_MAX: usize = 4000;

/// Number of readings of the clock to measure the cost of one.
const CLOCK_READINGS: usize = 1001;

pub(crate) fn family() -> Family {
    Family {
        rivals: &[
            "procession",
            "procession fifo",
            "crossbeam lifo",
            "crossbeam fifo",
            "st3 lifo",
            "st3 fifo",
        ],
        definitions: &[(
            "steal_half/N",
            "A thief with an empty queue steals half of a victim of N items, rounded up (crossbeam: at most 32 items), \
             on one thread; filling and draining are not timed, and the cost of reading the clock is taken off.",
        )],
        scenarios: LENGTHS.map(scenario).into(),
    }
}

fn scenario(length: usize) -> Scenario {
    let runs = [
        steal_half::<ProcessionLifo>,
        steal_half::<ProcessionFifo>,
        steal_half::<CrossbeamLifo>,
        steal_half::<CrossbeamFifo>,
        steal_half::<St3Lifo>,
        steal_half::<St3Fifo>,
    ];
    Scenario {
        name: format!("steal_half/{length}"),
        units: &[Unit::Cost("ns per steal"), Unit::Cost("ns per item stolen")],
        runs: runs.map(|run| Box::new(move |scale| run(length, scale)) as Run).into(),
    }
}

struct Pair<D: Deque> {
    victim: D,
    stealer: D::Stealer,
    thief: D,
}

impl<D: Deque> Pair<D> {
    fn new() -> Self {
        let victim = D::default();
        let stealer = victim.stealer();
        Self { victim, stealer, thief: D::default() }
    }

    #[inline]
    fn steal(&self) -> usize {
        self.thief
            .steal_half(&self.stealer)
            .success()
            .expect("the victim holds something, and there is no other thief")
    }

    /// Empties the thief's queue.
    fn drain(&self, tally: &mut Tally) {
        while let Some(item) = self.thief.pop() {
            tally.add(item);
        }
    }

    /// Empties the victim by more stealing: if its owner popped, crossbeam's buffer would shrink,
    /// and the garbage would be freed during the next steals.
    fn drain_victim(&self, tally: &mut Tally) {
        while let Steal::Success(item) = self.thief.steal_half(&self.stealer) {
            tally.add(item);
            self.drain(tally);
        }
    }
}

fn clock_cost() -> f64 {
    Spread::of((0..CLOCK_READINGS).map(|_| timed(|| black_box(())).0).collect()).median
}

fn steal_half<D: Deque>(length: usize, scale: Scale) -> Vec<f64> {
    let pairs: [Pair<D>; VICTIMS] = array::from_fn(|_| Pair::new());
    let passes = scale.count(ITEMS / (VICTIMS * length)).min(PASSES_MAX);
    let mut stolen = Tally::default();
    let mut left = Tally::default();
    let mut spent_ns = 0.0;
    let mut items = 0..;
    for _ in 0..passes {
        for pair in &pairs {
            for item in items.by_ref().take(length) {
                assert!(pair.victim.push(black_box(item)), "every victim has room for the longest");
            }
        }
        let (ns, firsts) =
            timed(|| black_box(array::from_fn::<_, VICTIMS, _>(|i| pairs[i].steal())));
        spent_ns += ns;
        for (pair, first) in pairs.iter().zip(firsts) {
            stolen.add(first);
            pair.drain(&mut stolen);
            pair.drain_victim(&mut left);
        }
    }
    stolen.and(left).assert_each_below(passes * VICTIMS * length);
    let ns = (spent_ns - passes as f64 * clock_cost()).max(0.0);
    vec![ns / (passes * VICTIMS) as f64, ns / stolen.count as f64]
}
