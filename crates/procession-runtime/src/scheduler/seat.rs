//! A worker's seat, as the other workers see it, with its counters, and all seats of a scheduler.

use std::sync::{Arc, OnceLock};

use procession_protocols::scheduler::checks::CheckWord;
use procession_protocols::scheduler::lifo_slot::LifoSlot;
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_protocols::time::timers::Timers;
use procession_queue::Global;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::Exit;
use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::{Core, FreeStacks, Queues};
use crate::scheduler::log::RingPlace;
use crate::sys::{Parker, ThreadFile, World};
use crate::time::action::Action;
use crate::util::generator::Generator;

/// A worker's seat, as the other workers see it.
pub(crate) struct Seat {
    pub(crate) queues: Queues,
    pub(crate) next: LifoSlot<Slot>,
    /// Processes that run only here.
    pub(crate) bound: Global<Ready>,
    pub(crate) timers: Timers<Action>,
    /// Twice the number of steps that have ended, and odd while a step runs. Written by the worker
    /// without a read-modify-write.
    pub(crate) step: AtomicU64,
    /// The slot index of the process that runs its step, plus 1; 0 after the step. For the
    /// watchdog, as are the next two fields, and for snapshots.
    pub(crate) running: AtomicU32,
    /// Set while the thread is in a blocking section. Also for the refused wait.
    pub(crate) in_section: AtomicBool,
    /// The system's number for the thread, or 0 if the seat is vacant.
    pub(crate) thread: AtomicU32,
    /// The file from which the watchdog reads the state of that thread. The watchdog keeps it open;
    /// it is closed when the thread leaves.
    pub(crate) thread_file: Mutex<Option<ThreadFile>>,
    pub(crate) parker: Parker,
    /// The calls of `checkpoint` until the next look of the thread in the seat.
    pub(crate) check_word: Arc<CheckWord>,
    pub(crate) stats: Stats,
    /// The events of the threads that have sat here, once one has.
    pub(crate) ring: RingPlace,
    /// The number of coroutines that begin here or have begun here, and so stay here, or were sent
    /// here.
    pub(crate) coroutines: AtomicU32,
    /// The free stacks that coroutines left here.
    pub(crate) stacks: FreeStacks,
    /// As `coroutines`, of local processes.
    pub(crate) locals: AtomicU32,
    /// The worker's private state, while no thread sits here.
    pub(crate) core: Mutex<Option<Core>>,
}

impl Seat {
    pub(crate) fn new(generator: Generator, timers: u32) -> Self {
        let (core, queues) = Core::new(generator);
        Self {
            queues,
            next: LifoSlot::empty(),
            bound: Global::new(),
            timers: Timers::new(timers),
            step: AtomicU64::new(0),
            running: AtomicU32::new(0),
            in_section: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            thread_file: Mutex::new(None),
            parker: Parker::default(),
            check_word: Arc::default(),
            stats: Stats::default(),
            ring: RingPlace::new(),
            coroutines: AtomicU32::new(0),
            stacks: FreeStacks::default(),
            locals: AtomicU32::new(0),
            core: Mutex::new(Some(core)),
        }
    }

    /// Takes the core of a vacant seat.
    pub(crate) fn take_core(&self) -> Option<Core> {
        self.core.lock().take()
    }

    /// Returns `true` if a vacant seat holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.are_empty()
            && self.bound.is_empty()
            && self.next.look().is_null()
            && self.timers.next() == NEVER
    }
}

/// A counter with one writer, which all threads may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to the count. Only the count's owner may call this: it is no read-modify-write.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Ordering: Release pairs with the Acquire of `get`: a thread that sees this count sees
        // what was counted before.
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Release);
    }

    /// Adds to the count. Any thread may call this if none calls `add`.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// The counters of a worker. Each has one writer, except `stolen`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) parks: Count,
    pub(crate) searches: Count,
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    pub(crate) spawned: Count,
    pub(crate) ended: Count,
    /// Counted among both `spawned` and `ended`: spawns that were refused.
    pub(crate) refused: Count,
    pub(crate) panics: Count,
    /// Processes that ended by a kill.
    pub(crate) killed: Count,
    /// Processes that were shut down.
    pub(crate) stopped: Count,
    /// Processes that lost their connections.
    pub(crate) disconnected: Count,
    /// Processes that ended with any other exit that is not normal.
    pub(crate) failed: Count,
    pub(crate) sent: Count,
    pub(crate) received: Count,
    pub(crate) discarded: Count,
    /// Messages that a mailbox did not take, and that went back to their senders.
    pub(crate) returned: Count,
    /// Nanoseconds in steps, by samples. Written by the watchdog.
    pub(crate) busy: Count,
    /// Since when nothing was taken from a queue that holds something, or 0. Written by the
    /// watchdog.
    pub(crate) queued_since: AtomicU64,
}

impl Stats {
    /// Counts an exit that is not normal, before the process counts as ended. Only the owner of the
    /// counters may call this.
    pub(crate) fn count_exit(&self, exit: &Exit) {
        match exit {
            Exit::Normal => {}
            Exit::Shutdown | Exit::NameLost(_) => self.stopped.add(1),
            Exit::Panicked(_) => self.panics.add(1),
            Exit::Killed => self.killed.add(1),
            Exit::Disconnected(_) => self.disconnected.add(1),
            _ => self.failed.add(1),
        }
    }
}

/// The odd step numbers in which snapshots found the workers, and the times of the first such
/// snapshot.
pub(crate) type Ages = Vec<(u64, u64)>;

/// The counters of a scheduler outside its workers.
#[derive(Debug, Default)]
pub(crate) struct SharedStats {
    /// The counters of threads that are no workers.
    pub(crate) outside: Stats,
    /// The number of blocking sections that were entered.
    pub(crate) blocking_sections: AtomicU64,
    pub(crate) ages: Mutex<Ages>,
}

/// The seats of a scheduler.
pub(crate) struct SeatTable {
    /// The first seats, as many as the scheduler was built wide. Processes may be bound to these.
    first: Box<[Seat]>,
    /// The extra seats, for threads that take over from blocked threads. Made when first used.
    extra: Box<[OnceLock<Box<Seat>>]>,
    /// The maximum number of pending timers of each seat.
    timers_max: u32,
    /// The numbers coprime to the number of first seats.
    strides: Box<[u32]>,
}

impl SeatTable {
    pub(crate) fn new(world: &World, width: usize, max_threads: usize, timers_max: u32) -> Self {
        let seat = |number| Seat::new(world.generator(number as u64), timers_max);
        Self {
            first: (0..width).map(seat).collect(),
            extra: (width..max_threads).map(|_| OnceLock::new()).collect(),
            timers_max,
            strides: (1..=width as u32).filter(|&stride| coprime(stride, width as u32)).collect(),
        }
    }

    /// Returns the seat if it is one of the first.
    #[inline]
    pub(crate) fn get_first(&self, seat: SeatId) -> Option<&Seat> {
        self.first.get(seat.0 as usize)
    }

    /// Returns an extra seat, and makes it if this is its first use.
    #[cold]
    pub(crate) fn get_extra(&self, seat: SeatId, world: &World) -> &Seat {
        let make = || Box::new(Seat::new(world.generator(seat.0.into()), self.timers_max));
        self.extra[seat.0 as usize - self.first.len()].get_or_init(make)
    }

    /// Returns the seat if it has been used.
    pub(crate) fn made(&self, seat: SeatId) -> Option<&Seat> {
        let number = seat.0 as usize;
        self.first
            .get(number)
            .or_else(|| self.extra.get(number - self.first.len())?.get().map(|seat| &**seat))
    }

    /// Returns every seat that was ever used.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Seat> {
        self.up_to(self.len())
    }

    /// Returns all first seats, and the extra seats below number `count` that were ever used.
    #[inline]
    pub(crate) fn up_to(&self, count: usize) -> impl Iterator<Item = &Seat> {
        let extra = count.saturating_sub(self.first.len());
        // A seat that is not made yet holds nothing.
        self.first
            .iter()
            .chain(self.extra[..extra].iter().filter_map(|seat| seat.get().map(|seat| &**seat)))
    }

    /// Returns the number of first seats, to which processes can be bound: the width with which the
    /// scheduler was built.
    pub(crate) fn first(&self) -> u32 {
        self.first.len() as u32
    }

    /// Returns the number of seats, used or not.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.extra.len()
    }

    /// Returns `true` if this thread has a seat, even while a step in it waits for another
    /// scheduler here.
    pub(crate) fn has_this_thread(&self) -> bool {
        let this = World::thread_number();
        // Relaxed: only this thread writes its own number.
        self.used().any(|seat| seat.thread.load(Relaxed) == this)
    }

    pub(crate) fn strides(&self) -> &[u32] {
        &self.strides
    }
}

fn coprime(a: u32, b: u32) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}
