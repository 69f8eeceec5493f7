//! Litmus tests of the memory models. Each runs some thousand times and must meet exactly the
//! outcomes that x86-TSO allows (Sewell and others, CACM 2010). The tests of the weak processor are
//! in a module of their own.

mod weak;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use procession_sim::{Bound, Check, Faults, Processor, Threads};
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};
use procession_sync::host::Mutex;
use procession_sync::simulated::heavy_fence;

/// What the atomics of a test contain at first.
#[derive(Default)]
struct Shared {
    x: AtomicU32,
    y: AtomicU32,
}

/// One thread of a test. Returns what it has read.
type Thread = fn(&Shared) -> Vec<u32>;

/// What the threads have read, in their order.
type Results = Mutex<Vec<Vec<u32>>>;

fn start(threads: &Threads<'_>, bodies: &[Thread]) -> (Arc<Shared>, Arc<Results>) {
    let shared = Arc::new(Shared::default());
    let results = Arc::new(Mutex::new(vec![Vec::new(); bodies.len()]));
    for (at, &body) in bodies.iter().enumerate() {
        let (shared, results) = (Arc::clone(&shared), Arc::clone(&results));
        threads.spawn(move || {
            let read = body(&shared);
            results.lock()[at] = read;
        });
    }
    (shared, results)
}

/// What the threads of a run have read, and then what the atomics contain if a test looks.
type Outcomes = BTreeSet<Vec<u32>>;

/// Runs the threads with as many seeds, and then in all schedules with so many deviations.
fn outcomes(
    processor: Processor,
    bodies: &'static [Thread],
    ends: bool,
    seeds: u64,
    deviations: u32,
) -> [Outcomes; 2] {
    let seen: Arc<Mutex<Outcomes>> = Arc::default();
    let noted = Arc::clone(&seen);
    let program = move |threads: &Threads<'_>| {
        let (shared, results) = start(threads, bodies);
        threads.join_all();
        let mut outcome = results.lock().concat();
        if ends {
            outcome.extend([shared.x.load(Relaxed), shared.y.load(Relaxed)]);
        }
        noted.lock().insert(outcome);
    };
    let check = || {
        let check = Check::new().at_atomics().processor(processor);
        check.faults(Faults::none()).time_limit(Duration::MAX)
    };
    check().seeds(0..seeds).try_threads(program.clone()).expect("nothing fails");
    let drawn = std::mem::take(&mut *seen.lock());
    let bound = Bound { deviations, runs: 200_000 };
    let searched = check().try_all_of_threads(bound, program).expect("nothing fails");
    assert!(searched.is_complete, "{searched:?}");
    let searched = std::mem::take(&mut *seen.lock());
    [drawn, searched]
}

/// Asserts that both random runs and the search meet exactly these outcomes.
#[track_caller]
fn meets_exactly(bodies: &'static [Thread], ends: bool, allowed: &[&[u32]]) {
    let allowed: BTreeSet<_> = allowed.iter().map(|outcome| outcome.to_vec()).collect();
    for met in outcomes(Processor::X86, bodies, ends, 10_000, 3) {
        assert_eq!(met, allowed);
    }
}

#[test]
fn store_buffering() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Release);
            vec![shared.y.load(Acquire)]
        },
        |shared| {
            shared.y.store(1, Release);
            vec![shared.x.load(Acquire)]
        },
    ];
    meets_exactly(BODIES, false, &[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]);
}

#[test]
fn store_buffering_with_full_fences() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            fence(SeqCst);
            vec![shared.y.load(Relaxed)]
        },
        |shared| {
            shared.y.store(1, SeqCst);
            vec![shared.x.load(SeqCst)]
        },
    ];
    meets_exactly(BODIES, false, &[&[0, 1], &[1, 0], &[1, 1]]);
}

#[test]
fn store_buffering_with_one_full_fence() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            fence(SeqCst);
            vec![shared.y.load(Relaxed)]
        },
        |shared| {
            shared.y.store(1, Relaxed);
            vec![shared.x.load(Relaxed)]
        },
    ];
    meets_exactly(BODIES, false, &[&[0, 0], &[0, 1], &[1, 0], &[1, 1]]);
}

/// The light fence is none of the processor's, and the heavy one acts on all threads.
#[test]
fn store_buffering_with_a_light_and_a_heavy_fence() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            procession_sync::atomic::compiler_fence(SeqCst);
            vec![shared.y.load(Relaxed)]
        },
        |shared| {
            shared.y.store(1, Relaxed);
            assert!(heavy_fence(), "this is a simulation");
            vec![shared.x.load(Relaxed)]
        },
    ];
    meets_exactly(BODIES, false, &[&[0, 1], &[1, 0], &[1, 1]]);
}

#[test]
fn message_passing() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(1, Release);
            vec![]
        },
        |shared| vec![shared.y.load(Acquire), shared.x.load(Relaxed)],
    ];
    meets_exactly(BODIES, false, &[&[0, 0], &[0, 1], &[1, 1]]);
}

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
    meets_exactly(BODIES, false, &[&[0, 0], &[0, 1], &[1, 0]]);
}

#[test]
fn two_writes_in_each_order() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            shared.y.store(2, Relaxed);
            vec![]
        },
        |shared| {
            shared.y.store(1, Relaxed);
            shared.x.store(2, Relaxed);
            vec![]
        },
    ];
    meets_exactly(BODIES, true, &[&[1, 2], &[2, 1], &[2, 2]]);
}

/// Two readers agree on the order of two independent writes.
#[test]
fn independent_reads_of_independent_writes() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![]
        },
        |shared| {
            shared.y.store(1, Relaxed);
            vec![]
        },
        |shared| vec![shared.x.load(Relaxed), shared.y.load(Relaxed)],
        |shared| vec![shared.y.load(Relaxed), shared.x.load(Relaxed)],
    ];
    let [drawn, searched] = outcomes(Processor::X86, BODIES, false, 10_000, 3);
    let mut allowed = BTreeSet::new();
    for outcome in 0..16 {
        let bits: Vec<u32> = (0..4).map(|bit| outcome >> (3 - bit) & 1).collect();
        if bits != [1, 0, 1, 0] {
            allowed.insert(bits);
        }
    }
    assert_eq!(drawn, allowed);
    assert!(searched.is_subset(&allowed) && searched.len() > 10, "{searched:?}");
}

/// A thread sees its own store before others do, and the other thread's not yet.
#[test]
fn own_stores_are_seen_early() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![shared.x.load(Relaxed), shared.y.load(Relaxed)]
        },
        |shared| {
            shared.y.store(1, Relaxed);
            vec![shared.y.load(Relaxed), shared.x.load(Relaxed)]
        },
    ];
    meets_exactly(BODIES, false, &[&[1, 0, 1, 0], &[1, 0, 1, 1], &[1, 1, 1, 0], &[1, 1, 1, 1]]);
}

#[test]
fn a_read_modify_write_drains_the_buffer() {
    const BODIES: &[Thread] = &[
        |shared| {
            shared.x.store(1, Relaxed);
            vec![shared.y.swap(1, Relaxed)]
        },
        |shared| vec![shared.y.swap(1, Relaxed), shared.x.load(Relaxed)],
    ];
    meets_exactly(BODIES, false, &[&[0, 1, 1], &[1, 0, 0], &[1, 0, 1]]);
}
