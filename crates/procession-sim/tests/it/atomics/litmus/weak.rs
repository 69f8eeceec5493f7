//! Litmus tests of the weak processor. The names of the shapes are those of Alglave, Maranget and
//! Tautschnig (*Herding cats*, TOPLAS 2014). Outcomes that need a load of a value that is stored
//! later never appear, although the memory model of Rust allows some of them (`load_buffering`).

use procession_sim::Processor;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{compiler_fence, fence};
use procession_sync::simulated::heavy_fence;

use super::{Outcomes, Thread, outcomes};

/// All lists of so many numbers, each 0 or 1, except those that are forbidden.
fn all_bits_except(count: u32, forbidden: &[&[u32]]) -> Outcomes {
    let bits = |number: u32| (0..count).rev().map(|bit| number >> bit & 1).collect::<Vec<_>>();
    (0..1 << count).map(bits).filter(|bits| !forbidden.contains(&&**bits)).collect()
}

/// Asserts that both random runs and the search meet exactly these outcomes.
#[track_caller]
fn meets_exactly(bodies: &'static [Thread], ends: bool, allowed: &Outcomes) {
    for met in outcomes(Processor::Weak, bodies, ends, 3000, 2) {
        assert_eq!(met, *allowed);
    }
}

/// Asserts that the threads, which read `count` bits, meet all outcomes but the forbidden ones.
#[track_caller]
fn meets_all_but(bodies: &'static [Thread], count: u32, forbidden: &[&[u32]]) {
    meets_exactly(bodies, false, &all_bits_except(count, forbidden));
}

/// Asserts that random runs meet exactly these outcomes, and the search with one deviation no
/// other. There are too many schedules of four threads.
#[track_caller]
fn four_threads_meet_exactly(bodies: &'static [Thread], allowed: &Outcomes) {
    let [drawn, searched] = outcomes(Processor::Weak, bodies, false, 10_000, 0);
    assert_eq!(drawn, *allowed);
    assert!(searched.is_subset(allowed), "{searched:?}");
}

/// Two threads that each store to one atomic and load the other, with a fence in between or none.
macro_rules! store_buffering {
    ($store:ident, $one:expr, $other:expr, $load:ident) => {
        &[
            |shared| {
                shared.x.store(1, $store);
                $one;
                vec![shared.y.load($load)]
            },
            |shared| {
                shared.y.store(1, $store);
                $other;
                vec![shared.x.load($load)]
            },
        ]
    };
}

fn heavy() {
    assert!(heavy_fence(), "this is a simulation");
}

/// Stands where a test has no fence.
fn none() {}

fn light() {
    compiler_fence(SeqCst);
}

#[test]
fn store_buffering() {
    const RELAXED: &[Thread] = store_buffering!(Relaxed, none(), none(), Relaxed);
    const RELEASED: &[Thread] = store_buffering!(Release, none(), none(), Acquire);
    const ONE_FENCE: &[Thread] = store_buffering!(Relaxed, fence(SeqCst), none(), Relaxed);
    const WEAK_FENCES: &[Thread] = store_buffering!(Relaxed, fence(AcqRel), fence(AcqRel), Relaxed);
    const FENCES: &[Thread] = store_buffering!(Relaxed, fence(SeqCst), fence(SeqCst), Relaxed);
    const TOTAL: &[Thread] = store_buffering!(SeqCst, none(), none(), SeqCst);
    const LIGHT: &[Thread] = store_buffering!(Relaxed, light(), light(), Relaxed);
    const LIGHT_AND_FULL: &[Thread] = store_buffering!(Relaxed, light(), fence(SeqCst), Relaxed);
    const LIGHT_AND_HEAVY: &[Thread] = store_buffering!(Relaxed, light(), heavy(), Relaxed);
    for weak in [RELAXED, RELEASED, ONE_FENCE, WEAK_FENCES, LIGHT, LIGHT_AND_FULL] {
        meets_all_but(weak, 2, &[]);
    }
    for strong in [FENCES, TOTAL, LIGHT_AND_HEAVY] {
        meets_all_but(strong, 2, &[&[0, 0]]);
    }
}

/// A thread that stores to `x` and then to `y`, and another one that loads `y` and then `x`.
macro_rules! message_passing {
    ($before:expr, $store:ident, $load:ident, $after:expr) => {
        &[
            |shared| {
                shared.x.store(1, Relaxed);
                $before;
                shared.y.store(1, $store);
                vec![]
            },
            |shared| {
                let y = shared.y.load($load);
                $after;
                vec![y, shared.x.load(Relaxed)]
            },
        ]
    };
}

#[test]
fn message_passing() {
    const RELAXED: &[Thread] = message_passing!(none(), Relaxed, Relaxed, none());
    const RELEASED: &[Thread] = message_passing!(none(), Release, Relaxed, none());
    const ACQUIRED: &[Thread] = message_passing!(none(), Relaxed, Acquire, none());
    const LIGHT: &[Thread] = message_passing!(light(), Relaxed, Relaxed, light());
    const FENCE_BEFORE: &[Thread] = message_passing!(fence(Release), Relaxed, Relaxed, none());
    const FENCE_AFTER: &[Thread] = message_passing!(none(), Relaxed, Relaxed, fence(Acquire));
    const BOTH: &[Thread] = message_passing!(none(), Release, Acquire, none());
    const FENCES: &[Thread] = message_passing!(fence(Release), Relaxed, Relaxed, fence(Acquire));
    const STORE_AND_FENCE: &[Thread] = message_passing!(none(), Release, Relaxed, fence(Acquire));
    const FENCE_AND_LOAD: &[Thread] = message_passing!(fence(Release), Relaxed, Acquire, none());
    const HEAVY_BEFORE: &[Thread] = message_passing!(heavy(), Relaxed, Relaxed, light());
    const HEAVY_AFTER: &[Thread] = message_passing!(light(), Relaxed, Relaxed, heavy());
    for weak in [RELAXED, RELEASED, ACQUIRED, LIGHT, FENCE_BEFORE, FENCE_AFTER] {
        meets_all_but(weak, 2, &[]);
    }
    let strong = [BOTH, FENCES, STORE_AND_FENCE, FENCE_AND_LOAD, HEAVY_BEFORE, HEAVY_AFTER];
    for strong in strong {
        meets_all_but(strong, 2, &[&[1, 0]]);
    }
}

/// The model has no promises, so no thread reads what another one stores only later.
#[test]
fn load_buffering() {
    const BODIES: &[Thread] = &[
        |shared| {
            let read = shared.x.load(Relaxed);
            shared.y.store(1, Relaxed);
            vec![read]
        },
        |shared| {
            let read = shared.y.load(Relaxed);
            shared.x.store(1, Relaxed);
            vec![read]
        },
    ];
    meets_all_but(BODIES, 2, &[&[1, 1]]);
}

/// Two threads that store, and two that load both atomics in opposite orders.
macro_rules! independent_reads {
    ($load:ident, $between:expr) => {
        &[
            |shared| {
                shared.x.store(1, Release);
                vec![]
            },
            |shared| {
                shared.y.store(1, Release);
                vec![]
            },
            |shared| {
                let x = shared.x.load($load);
                $between;
                vec![x, shared.y.load($load)]
            },
            |shared| {
                let y = shared.y.load($load);
                $between;
                vec![y, shared.x.load($load)]
            },
        ]
    };
}

/// Without a full fence, the readers may disagree about the order of the stores. An AArch64 would
/// agree if the loads acquire; the memory model of Rust does not promise it.
#[test]
fn independent_reads_of_independent_writes() {
    const RELAXED: &[Thread] = independent_reads!(Relaxed, none());
    const ACQUIRED: &[Thread] = independent_reads!(Acquire, none());
    const FENCED: &[Thread] = independent_reads!(Relaxed, fence(SeqCst));
    four_threads_meet_exactly(RELAXED, &all_bits_except(4, &[]));
    four_threads_meet_exactly(ACQUIRED, &all_bits_except(4, &[]));
    four_threads_meet_exactly(FENCED, &all_bits_except(4, &[&[1, 0, 1, 0]]));
}

/// A thread never sees the values of one atomic in the wrong order.
#[test]
fn coherence() {
    const TWO_READS: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![]
        },
        |shared| vec![shared.x.load(Relaxed), shared.x.load(Relaxed)],
    ];
    meets_all_but(TWO_READS, 2, &[&[1, 0]]);
    const TWO_WRITES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.x.store(2, Relaxed);
            vec![]
        },
        |shared| vec![shared.x.load(Relaxed), shared.x.load(Relaxed)],
    ];
    let ordered = [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]].map(Vec::from);
    meets_exactly(TWO_WRITES, false, &ordered.into());
    const OWN_WRITE: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![shared.x.load(Relaxed)]
        },
        |shared| {
            shared.x.store(2, Relaxed);
            vec![]
        },
    ];
    // What the thread reads, and the value that stays.
    meets_exactly(OWN_WRITE, true, &[[1, 1, 0], [1, 2, 0], [2, 2, 0]].map(Vec::from).into());
}

/// Readers of one atomic agree about the order of its values.
#[test]
fn coherence_of_two_readers() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![]
        },
        |shared| {
            shared.x.store(2, Relaxed);
            vec![]
        },
        |shared| vec![shared.x.load(Relaxed), shared.x.load(Relaxed)],
        |shared| vec![shared.x.load(Relaxed), shared.x.load(Relaxed)],
    ];
    let pairs = || [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 1], [2, 2]].into_iter();
    let both = pairs().flat_map(|one| pairs().map(move |other| [one, other]));
    let agree = both.filter(|pair| *pair != [[1, 2], [2, 1]] && *pair != [[2, 1], [1, 2]]);
    four_threads_meet_exactly(BODIES, &agree.map(|pair| pair.concat()).collect());
}

/// Two threads that store to both atomics in opposite orders.
macro_rules! two_plus_two_writes {
    ($store:ident, $between:expr) => {
        &[
            |shared| {
                shared.x.store(1, $store);
                $between;
                shared.y.store(2, $store);
                vec![]
            },
            |shared| {
                shared.y.store(1, $store);
                $between;
                shared.x.store(2, $store);
                vec![]
            },
        ]
    };
}

/// The stores that stay may be the first ones of both threads, even if all release.
#[test]
fn two_writes_in_each_order() {
    const RELAXED: &[Thread] = two_plus_two_writes!(Relaxed, none());
    const RELEASED: &[Thread] = two_plus_two_writes!(Release, none());
    const FENCED: &[Thread] = two_plus_two_writes!(Relaxed, fence(SeqCst));
    const TOTAL: &[Thread] = two_plus_two_writes!(SeqCst, none());
    let ordered = [[1, 2], [2, 1], [2, 2]].map(Vec::from);
    let all = [[1, 1], [1, 2], [2, 1], [2, 2]].map(Vec::from);
    meets_exactly(RELAXED, true, &all.clone().into());
    meets_exactly(RELEASED, true, &all.into());
    meets_exactly(FENCED, true, &ordered.clone().into());
    meets_exactly(TOTAL, true, &ordered.into());
}

/// Nothing comes between the load and the store of a read-modify-write.
#[test]
fn read_modify_writes_are_atomic() {
    const ADDS: &[Thread] = &[
        |shared| vec![shared.x.fetch_add(1, Relaxed)],
        |shared| vec![shared.x.fetch_add(1, Relaxed)],
    ];
    meets_exactly(ADDS, true, &[[0, 1, 2, 0], [1, 0, 2, 0]].map(Vec::from).into());
    const EXCHANGES: &[Thread] = &[
        |shared| vec![u32::from(shared.x.compare_exchange(0, 1, Relaxed, Relaxed).is_ok())],
        |shared| vec![u32::from(shared.x.compare_exchange(0, 2, Relaxed, Relaxed).is_ok())],
    ];
    meets_exactly(EXCHANGES, true, &[[0, 1, 2, 0], [1, 0, 1, 0]].map(Vec::from).into());
}

/// A read-modify-write passes on what the value before it has released, and a store does not, even
/// if it is one of the same thread.
#[test]
fn release_sequences() {
    const UPDATE: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(1, Release);
            shared.y.fetch_add(1, Relaxed);
            vec![]
        },
        |shared| vec![u32::from(shared.y.load(Acquire) == 2), shared.x.load(Relaxed)],
    ];
    meets_all_but(UPDATE, 2, &[&[1, 0]]);
    const STORE: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(1, Release);
            shared.y.store(2, Relaxed);
            vec![]
        },
        |shared| vec![u32::from(shared.y.load(Acquire) == 2), shared.x.load(Relaxed)],
    ];
    meets_all_but(STORE, 2, &[]);
}

/// An exchange that fails is a load with its own ordering.
#[test]
fn failed_exchanges() {
    const ACQUIRES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(1, Release);
            vec![]
        },
        |shared| {
            let failed = shared.y.compare_exchange(7, 8, Relaxed, Acquire);
            vec![failed.expect_err("it is never 7"), shared.x.load(Relaxed)]
        },
    ];
    meets_all_but(ACQUIRES, 2, &[&[1, 0]]);
    const RELAXED: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(1, Release);
            vec![]
        },
        |shared| {
            let failed = shared.y.compare_exchange(7, 8, AcqRel, Relaxed);
            vec![failed.expect_err("it is never 7"), shared.x.load(Relaxed)]
        },
    ];
    meets_all_but(RELAXED, 2, &[]);
}
