//! The protocols with light fences, alone: threads that use nothing but the protocol. So nothing
//! else orders what a missing Acquire or Release of the protocol leaves without an order, as the
//! state word of a process does in the whole scheduler.

use std::ptr::NonNull;
use std::sync::Arc;

use procession_protocols::scheduler::lifo_slot::{self, LifoSlot};
use procession_protocols::scheduler::shutdown::{self, ENDED, ShutdownPhase, TERMINATING};
use procession_protocols::util::biased_lock::{self, Lock};
use procession_sim::{Check, Fault, Faults, Processor, Threads};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};
use procession_sync::cell::UnsafeCell;
use procession_sync::host::atomic::AtomicU32 as HostU32;
use procession_sync::thread::yield_now;

/// Something that one thread at a time may touch, as far as the protocol says. Nothing is read or
/// written.
#[derive(Default)]
struct Touched(UnsafeCell<u32>);

// SAFETY: the value in the cell is never touched.
#[expect(unsafe_code, reason = "a data race needs a cell that threads share")]
unsafe impl Sync for Touched {}

impl Touched {
    fn touch(&self) {
        self.0.with_mut(|_| ());
    }

    fn look(&self) {
        self.0.with(|_| ());
    }
}

/// Three threads take a lock twice each, and touch what it guards.
pub(crate) fn lock<const MUTATION: u8>(threads: &Threads<'_>) {
    let lock = Arc::new((Lock::<u32, MUTATION>::new(0), HostU32::new(0)));
    for _ in 0..3 {
        let lock = Arc::clone(&lock);
        threads.spawn(move || {
            for _ in 0..2 {
                *lock.0.lock() += 1;
                lock.1.fetch_add(1, Relaxed);
            }
        });
    }
    threads.join_all();
    threads.sim().always("each thread had the lock twice", lock.1.load(Relaxed) == 6);
}

/// A slot, and what its entries are made of.
struct Entries<const MUTATION: u8> {
    slot: LifoSlot<Touched, MUTATION>,
    entries: [Touched; 4],
    taken: [HostU32; 4],
}

impl<const MUTATION: u8> Entries<MUTATION> {
    fn new() -> Self {
        Self { slot: LifoSlot::empty(), entries: <_>::default(), taken: <_>::default() }
    }

    /// Puts an entry into the slot, and has the one that was there.
    fn put(&self, entry: &Touched) {
        entry.touch();
        if let Some(before) = self.slot.set(NonNull::from(entry)) {
            self.take(before);
        }
    }

    /// Has an entry that has left the slot.
    fn take(&self, entry: NonNull<Touched>) {
        let is_it = |one: &Touched| NonNull::from(one) == entry;
        let number = self.entries.iter().position(is_it).expect("it is one of the entries");
        self.entries[number].touch();
        self.taken[number].fetch_add(1, Relaxed);
    }
}

/// An owner puts entries into its slot and takes some out, while two thieves steal. The thread
/// that has an entry touches it.
pub(crate) fn slot<const MUTATION: u8>(threads: &Threads<'_>) {
    let shared = Arc::new(Entries::<MUTATION>::new());
    for _ in 0..2 {
        let shared = Arc::clone(&shared);
        threads.spawn(move || {
            for _ in 0..3 {
                if let Some(entry) = shared.slot.steal(shared.slot.look()) {
                    shared.take(entry);
                }
            }
        });
    }
    let owner = Arc::clone(&shared);
    threads.spawn(move || {
        for (number, entry) in owner.entries.iter().enumerate() {
            owner.put(entry);
            if number % 2 == 0
                && let Some(entry) = owner.slot.take()
            {
                owner.take(entry);
            }
        }
    });
    threads.join_all();
    if let Some(left) = shared.slot.take() {
        shared.take(left);
    }
    let is_once = shared.taken.iter().all(|taken| taken.load(Relaxed) == 1);
    threads.sim().always("each entry is taken once", is_once);
}

/// A thief steals between two entries of the owner. Only the slot orders the raid and what the
/// owner does next, because the simulation does not see the counts of raids.
pub(crate) fn raid<const MUTATION: u8>(threads: &Threads<'_>) {
    fn wait_for(count: &HostU32, wanted: u32) {
        while count.load(Relaxed) < wanted {
            yield_now();
        }
    }

    // The number of raids that may begin, and the number of raids that are over.
    let counts = [HostU32::new(0), HostU32::new(0)];
    let shared = Arc::new((Entries::<MUTATION>::new(), counts));
    let thief = Arc::clone(&shared);
    threads.spawn(move || {
        let (entries, [begun, over]) = &*thief;
        for raid in 1..=2 {
            wait_for(begun, raid);
            if let Some(entry) = entries.slot.steal(entries.slot.look()) {
                entries.take(entry);
            }
            over.store(raid, Relaxed);
        }
    });
    let owner = Arc::clone(&shared);
    threads.spawn(move || {
        let (entries, [begun, over]) = &*owner;
        for (raid, pair) in (1..).zip(entries.entries.chunks(2)) {
            entries.put(&pair[0]);
            begun.store(raid, Relaxed);
            wait_for(over, raid);
            entries.put(&pair[1]);
            if let Some(entry) = entries.slot.take() {
                entries.take(entry);
            }
        }
    });
    threads.join_all();
    let is_once = shared.0.taken.iter().all(|taken| taken.load(Relaxed) == 1);
    threads.sim().always("each entry is taken once", is_once);
}

/// What processes and waiters share while a scheduler shuts down.
struct Closing<const MUTATION: u8> {
    phase: ShutdownPhase<MUTATION>,
    published: AtomicU32,
    ended: AtomicU32,
    /// Whether a thread waits for the end.
    waits: Mutex<bool>,
    /// Written before the scheduler has ended.
    before_end: Touched,
    /// Whether the walk has found the process, or the process has seen the shutdown; and the same
    /// of the wait and the end.
    is_known: [HostU32; 2],
}

/// A process is published, and another one ends, while their scheduler shuts down.
pub(crate) fn shutdown<const MUTATION: u8>(threads: &Threads<'_>) {
    let shared = Arc::new(Closing::<MUTATION> {
        phase: ShutdownPhase::open(),
        published: AtomicU32::new(0),
        ended: AtomicU32::new(0),
        waits: Mutex::new(false),
        before_end: Touched::default(),
        is_known: Default::default(),
    });
    let spawner = Arc::clone(&shared);
    threads.spawn(move || {
        // Relaxed: nothing but the fences orders slot and word.
        spawner.published.store(1, Relaxed);
        let phase = spawner.phase.phase_after_publishing();
        if phase >= TERMINATING {
            spawner.is_known[0].store(1, Relaxed);
        }
        if phase == ENDED {
            spawner.before_end.look();
        }
    });
    let ending = Arc::clone(&shared);
    threads.spawn(move || {
        // Relaxed: nothing but the fences orders count and word.
        ending.ended.store(1, Relaxed);
        if ending.phase.is_end_awaited() {
            fence(SeqCst);
            if *ending.waits.lock() {
                ending.is_known[1].store(1, Relaxed);
            }
        }
    });
    let waiter = Arc::clone(&shared);
    threads.spawn(move || {
        *waiter.waits.lock() = true;
        waiter.phase.watch();
        if waiter.ended.load(Relaxed) == 1 {
            waiter.is_known[1].store(1, Relaxed);
        }
        if waiter.phase.phase() == ENDED {
            waiter.before_end.look();
        }
    });
    shared.phase.enter(TERMINATING);
    if shared.published.load(Relaxed) == 1 {
        shared.is_known[0].store(1, Relaxed);
    }
    shared.before_end.touch();
    shared.phase.enter(ENDED);
    threads.join_all();
    let [process, end] = [0, 1].map(|at: usize| shared.is_known[at].load(Relaxed) == 1);
    threads.sim().always("no process is left behind", process);
    threads.sim().always("no end is missed", end);
}

/// The check of a program. Half of the runs have no membarrier(2).
fn check(processor: Processor) -> Check {
    let faults = Faults::none().with(Fault::NoMembarrier);
    Check::new().at_atomics().processor(processor).faults(faults).seeds(0..SEEDS)
}

/// The number of seeds in which a defect must be found, or must not be found.
const SEEDS: u64 = 1000;

/// Runs a program with a defect on both processors. On the x86-64, the defect must be found if
/// `on_x86`.
fn finds(defect: &str, on_x86: bool, program: fn(&Threads<'_>)) {
    let first = |processor| {
        let found = check(processor).try_threads(program).err()?;
        let (_, seed) = found.split_once("seed ").expect("the report names the seed");
        Some(seed.split(|char: char| !char.is_ascii_digit()).next().map(str::to_owned))
    };
    let [weak, x86] = [Processor::Weak, Processor::X86].map(first);
    #[expect(clippy::print_stdout, reason = "the figures are of interest")]
    {
        println!("{defect}: weak {weak:?}, x86 {x86:?}");
    }
    assert!(weak.is_some(), "{defect} is not found on a weak processor");
    assert_eq!(x86.is_some(), on_x86, "{defect} on an x86-64");
}

#[test]
fn the_protocols_are_sound_on_both_processors() {
    let programs: [fn(&Threads<'_>); 4] = [
        lock::<{ biased_lock::mutation::SOUND }>,
        slot::<{ lifo_slot::mutation::SOUND }>,
        raid::<{ lifo_slot::mutation::SOUND }>,
        shutdown::<{ shutdown::mutation::SOUND }>,
    ];
    for processor in [Processor::X86, Processor::Weak] {
        for program in programs {
            check(processor).try_threads(program).unwrap_or_else(|report| {
                panic!("{processor:?}: {report}");
            });
        }
    }
}

/// Both fences are light, or there is none.
#[test]
fn a_missing_heavy_fence_is_found_on_both_processors() {
    use {biased_lock::mutation as l, lifo_slot::mutation as s, shutdown::mutation as p};
    finds("lock: wait without a heavy fence", true, lock::<{ l::WAIT_WITHOUT_FENCE }>);
    finds("lock: free without a fence", true, lock::<{ l::FREE_WITHOUT_FENCE }>);
    finds("slot: steal without a heavy fence", true, slot::<{ s::STEAL_WITHOUT_FENCE }>);
    finds("shutdown: no heavy fence", true, shutdown::<{ p::ENTER_WITHOUT_HEAVY_FENCE }>);
    finds("shutdown: no fence", true, shutdown::<{ p::WITHOUT_FENCE }>);
    finds("shutdown: watch without a fence", true, shutdown::<{ p::WATCH_WITHOUT_FENCE }>);
}

/// An x86-64 has the order that these defects remove.
#[test]
fn a_missing_release_or_acquire_is_found_on_a_weak_processor_only() {
    use {biased_lock::mutation as l, lifo_slot::mutation as s, shutdown::mutation as p};
    finds("lock: no Release in `Free`", false, lock::<{ l::FREE_RELAXED }>);
    finds("lock: no Acquire in `Lock`", false, lock::<{ l::LOCK_RELAXED }>);
    finds("slot: no Release in `Leave`", false, slot::<{ s::LEAVE_RELAXED }>);
    finds("slot: no Acquire in `steal`", false, slot::<{ s::STEAL_RELAXED }>);
    finds("slot: no Acquire in `Look`", false, raid::<{ s::LOOK_RELAXED }>);
    finds("slot: no Release in `Retreat`", false, raid::<{ s::RETREAT_RELAXED }>);
    finds("slot: no Release in the swap", false, slot::<{ s::SET_RELAXED }>);
    finds("slot: no Acquire in the claim", false, slot::<{ s::CLAIM_RELAXED }>);
    finds("shutdown: no Release in `Enter`", false, shutdown::<{ p::ENTER_RELAXED }>);
    finds("shutdown: no Acquire of the phase", false, shutdown::<{ p::PHASE_RELAXED }>);
    finds("shutdown: no Acquire in `CatchUp`", false, shutdown::<{ p::CATCH_UP_RELAXED }>);
}
