//! The state that the workers of a scheduler share with all threads that know one of its processes.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::{fmt, mem};

use procession_protocols::io::readiness::{ReadyEvent, Sources};
use procession_protocols::scheduler::driver::Driver;
use procession_protocols::scheduler::pace::Beacon;
use procession_protocols::sync::wait_list::{Place, ServedWaiters, WaitList, Waiter};
use procession_protocols::time::timers::Timers;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use crate::Pid;
use crate::mailbox::dead_letter;
use crate::mailbox::parcel::Relay;
use crate::process::request::{Inspectors, ProcessRequests};
use crate::process::slot::Ready;
use crate::process::table::Table;
use crate::process::unwind::{drop_each, drop_guarded, guarded};
use crate::process::wait_edge::WaitEdges;
use crate::scheduler::end::state::Lifetime;
use crate::scheduler::log::Recorder;
use crate::scheduler::part::Parts;
use crate::scheduler::root::Callers;
use crate::scheduler::seat::SharedStats;
use crate::scheduler::supply::Supply;
use crate::scheduler::wake_waits::WakeWaits;
use crate::scheduler::workforce::Workforce;
use crate::sys::World;
use crate::sys::events::Kernel;
use crate::time::action::Action;
use crate::util::column::Column;

/// The state that the workers of a scheduler share with all threads that know one of its processes.
///
/// Each part has the methods that need no other part. Methods that need several stand in the file
/// of their subject, in an `impl` block of this type.
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) world: Arc<World>,
    pub(crate) processes: ProcessIndex,
    pub(crate) workforce: Workforce,
    pub(crate) clock: Clock,
    pub(crate) poller: Poller,
    pub(crate) lifetime: Lifetime,
    pub(crate) callers: Callers,
    pub(crate) coroutines: Supply,
    pub(crate) recorder: Recorder,
    pub(crate) extensions: Extensions,
    pub(crate) parts: Parts,
    pub(crate) stats: SharedStats,
}

/// The names of a scheduler, and its reference to itself.
pub(crate) struct Identity {
    pub(crate) me: Weak<Shared>,
    pub(crate) id: u32,
    pub(crate) name: String,
}

/// The index of a scheduler's processes, by slot and by name.
pub(crate) struct ProcessIndex {
    pub(crate) table: Table,
    pub(crate) names: Names,
    /// Wakers of combinators inside processes, by slot, to be woken at the beginning of the next
    /// step. Few processes leave any.
    foreign: Mutex<SortedMap<u32, Vec<Waker>>>,
    /// Set if the ids of requests travel with messages to processes of this scheduler.
    pub(crate) has_request_ids: bool,
    /// Set if a call that would close a cycle of calls is refused.
    pub(crate) refuses_call_cycles: bool,
    /// Refers to the caller that traces the messages of a process, while there is one.
    pub(crate) tracer: Mutex<Weak<()>>,
    /// The requests that processes serve between two steps.
    pub(crate) requests: ProcessRequests<Ready>,
    /// The closures that async processes show themselves by.
    pub(crate) inspectors: Inspectors,
    /// The processes that waiting processes wait for.
    pub(crate) edges: WaitEdges,
    /// The level words of the processes that have one (`scheduler/levels.rs` of the protocols).
    pub(crate) level_words: Column,
    /// Since when processes wait (`watchdog/wait_stamps.rs`).
    pub(crate) stamps: Column,
    /// How long processes wait for their steps.
    pub(crate) waits: WakeWaits,
}

/// The names of a scheduler. Each entry has a counterpart in the relations of its process. The end
/// of the process removes both.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<SortedMap<Arc<str>, Pid>>);

impl Names {
    pub(crate) fn with<R>(&self, access: impl FnOnce(&mut SortedMap<Arc<str>, Pid>) -> R) -> R {
        access(&mut self.0.lock())
    }

    pub(crate) fn whereis(&self, name: &str) -> Option<Pid> {
        self.with(|names| names.get(name).copied())
    }
}

/// The builder's options for the index.
pub(crate) struct IndexOptions {
    pub(crate) request_ids: bool,
    pub(crate) refuse_call_cycles: bool,
    pub(crate) test_clock: bool,
}

impl ProcessIndex {
    pub(crate) fn new(table: Table, options: IndexOptions) -> Self {
        Self {
            table,
            has_request_ids: options.request_ids,
            refuses_call_cycles: options.refuse_call_cycles,
            tracer: Mutex::default(),
            names: Names::default(),
            foreign: Mutex::default(),
            requests: ProcessRequests::default(),
            inspectors: Inspectors::default(),
            edges: WaitEdges::new(options.test_clock),
            level_words: Column::default(),
            stamps: Column::default(),
            waits: WakeWaits::default(),
        }
    }

    pub(crate) fn leave_foreign(&self, slot: u32, waker: Waker) {
        self.foreign.lock().get_or_default(slot).push(waker);
    }

    pub(crate) fn take_foreign(&self, slot: u32) -> Vec<Waker> {
        let mut foreign = self.foreign.lock();
        foreign.remove(&slot).unwrap_or_default()
    }

    /// Takes all wakers that were left.
    fn take_all_foreign(&self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut *self.foreign.lock()).into_values().flatten()
    }
}

/// The objects that the program passed to the builder of the scheduler.
pub(crate) struct Extensions {
    /// The handlers of commands, a `HandlerTable`, which only machines need to know.
    pub(crate) handlers: Box<dyn Any + Send + Sync>,
    pub(crate) dead_letters: Option<dead_letter::Observer>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
}

impl Extensions {
    pub(crate) fn dead_letters(&self) -> Option<&dead_letter::Observer> {
        self.dead_letters.as_ref()
    }
}

/// The time of a scheduler, except for the timers of its seats.
pub(crate) struct Clock {
    pub(crate) driver: Driver,
    pub(crate) beacon: Beacon,
    /// Timers set by threads that are not workers.
    pub(crate) outside: Timers<Action>,
    /// The number of outstanding completions, of block-on futures that were woken, and of threads
    /// from outside that queue a process. The test clock stands still for them.
    pub(crate) outstanding: AtomicU32,
    /// The sleeps that found no room for a timer, and whether some of them may wait.
    timer_waiters: Mutex<WaitList<()>>,
    has_timer_waiters: AtomicBool,
}

impl Clock {
    /// Creates the clock, with at most this many pending timers outside of the seats.
    pub(crate) fn new(timers: u32) -> Self {
        Self {
            driver: Driver::none(),
            beacon: Beacon::default(),
            outside: Timers::new(timers),
            outstanding: AtomicU32::new(0),
            timer_waiters: Mutex::new(WaitList::new()),
            has_timer_waiters: AtomicBool::new(false),
        }
    }

    /// Registers a sleep that found no room for a timer, to be woken when there may be some. The
    /// caller tries once more afterwards.
    pub(crate) fn wait_for_timer(&self, waker: Waker) -> Place {
        let place = self.timer_waiters.lock().push(Waiter::Alone(waker), ());
        // Relaxed, as all uses: ordered by the fence (`time/timers.rs`, *Room*).
        self.has_timer_waiters.store(true, Relaxed);
        fence(SeqCst);
        place
    }

    /// Removes a sleep that no longer waits for room, or was woken. The caller drops what this
    /// returns, which may be a waker of the user.
    #[must_use]
    pub(crate) fn wait_no_longer(&self, place: Place) -> Option<Waiter> {
        self.timer_waiters.lock().remove(place).1
    }

    /// Wakes the sleeps that wait for room, after a timer was deleted, reset or fired.
    #[inline]
    pub(crate) fn note_timer_room(&self) {
        if self.has_timer_waiters.load(Relaxed) {
            self.wake_timer_waiters();
        }
    }

    #[cold]
    fn wake_timer_waiters(&self) {
        self.has_timer_waiters.store(false, Relaxed);
        for waker in self.take_timer_waiters().drain().filter_map(Waiter::into_waker) {
            drop(guarded(|| waker.wake()));
        }
    }

    fn take_timer_waiters(&self) -> ServedWaiters {
        let mut waiters = self.timer_waiters.lock();
        let mut taken = ServedWaiters::default();
        while let Some((waiter, ())) = waiters.serve(|()| ()) {
            taken.push(waiter);
        }
        taken
    }

    /// Returns the number of outstanding completions.
    ///
    /// A thread that finds none, and finds no work afterwards, knows that nothing is outstanding.
    /// In the other order, work may have been queued in between.
    pub(crate) fn outstanding(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `end_outstanding`. A thread that sees its
        // count sees what was queued before.
        self.outstanding.load(Acquire)
    }
}

/// The reactor's state: the kernel's queue of events, and the registered descriptors.
pub(crate) struct Poller {
    pub(crate) kernel: OnceLock<Arc<Kernel>>,
    pub(crate) opening: Mutex<()>,
    pub(crate) sources: Sources,
    /// `true` while a thread polls the kernel or waits in it. A hint: two threads may do so at the
    /// same time.
    pub(crate) asking: AtomicBool,
    /// Number of polls.
    pub(crate) polls: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Number of wakers that were left and not woken yet. Counted only on the test clock, which
    /// stands still until it is zero.
    pub(crate) waiting: AtomicU32,
}

/// The buffers of a thread that polls. They are kept because a poll should not allocate.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<ReadyEvent>,
    pub(crate) wakers: Vec<Waker>,
}

impl Poller {
    pub(crate) fn closed() -> Self {
        Self {
            kernel: OnceLock::new(),
            opening: Mutex::new(()),
            sources: Sources::none(),
            asking: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// Returns the kernel's queue of events, if a descriptor was ever registered.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.kernel.get()
    }

    /// Returns `true` if processes wait for descriptors. Always `false` without the test clock.
    pub(crate) fn is_waited_for(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `deliver`: what was woken is seen to be
        // queued.
        self.waiting.load(Acquire) > 0
    }

    /// How many descriptors are registered, how often the kernel was asked, and how many events it
    /// told.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        (self.sources.len(), self.polls.load(Relaxed), self.events.load(Relaxed))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("id", &self.identity.id)
            .field("name", &self.identity.name)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn id(&self) -> u32 {
        self.identity.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    pub(crate) fn table(&self) -> &Table {
        &self.processes.table
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.identity
            .me
            .upgrade()
            .expect("[type-stable] a scheduler is there while a slot of it is occupied")
    }
}

impl Drop for Shared {
    /// Drops the user's values one by one: the last address of a process may be dropped by any
    /// thread, even by a worker of another scheduler.
    fn drop(&mut self) {
        for timers in
            self.workforce.seats.used().map(|seat| &seat.timers).chain([&self.clock.outside])
        {
            timers.clear(&mut drop_guarded);
        }
        drop_each(self.clock.take_timer_waiters().drain());
        drop_each(self.callers.take_waiting());
        drop_each(self.lifetime.take_waiters());
        drop_each(self.processes.take_all_foreign());
        drop_each(self.processes.requests.take_all());
        drop_each(self.processes.inspectors.take_all());
        let extensions = &mut self.extensions;
        drop_guarded(extensions.dead_letters.take());
        drop_guarded(extensions.relay.take());
        let options = &mut self.workforce.threads.options;
        drop_guarded(options.on_start.take());
        drop_guarded(options.on_stop.take());
        self.parts.drop_each();
    }
}
