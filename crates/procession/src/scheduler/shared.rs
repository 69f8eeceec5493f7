//! What the workers of a scheduler, and everybody who knows one of its processes, share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::{fmt, mem};

use procession_coroutine::Stacks;
use procession_queue::Global;
use procession_sync::Mutex;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::coroutine::helpers::Helpers;
use crate::io::poller::Poller;
use crate::machine::registry::Registry;
use crate::mailbox::dead_letter;
use crate::mailbox::parcel::Relay;
use crate::process::slot::Ready;
use crate::process::table::Table;
use crate::process::unwind::{drop_each, drop_guarded};
use crate::relations::name_table::Names;
use crate::scheduler::driver::Keeper;
use crate::scheduler::idle::Idle;
use crate::scheduler::pace::Beacon;
use crate::scheduler::seat::{Seat, ThreadOptions};
use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shutdown::Closing;
use crate::scheduler::stats::Stats;
use crate::sys::{Parker, World};
use crate::time::action::Action;
use crate::time::timers::Timers;
use crate::watchdog::state::Watchdog;

/// How long no thread is started after the system has refused one: it will hardly have changed its
/// mind, and to ask costs a system call.
pub(crate) const REFUSAL_REST: u64 = 10_000_000;

/// What the workers of a scheduler, and everybody who knows one of its processes, share.
pub(crate) struct Shared {
    pub(crate) me: Weak<Self>,
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) world: World,
    pub(crate) table: Table,
    /// The global queue: what became ready outside of the workers, and what a woken ring had no
    /// room for.
    pub(crate) global: Global<Ready>,
    /// The overflow queue: what a continued ring or a deque had no room for.
    pub(crate) overflow: Global<Ready>,
    pub(crate) idle: Idle,
    /// As many seats as the scheduler was built wide. To these processes may be bound.
    pub(crate) seats: Box<[Seat]>,
    /// Those beyond, for the threads that take over from blocked ones; made when first used.
    pub(crate) extra_seats: Box<[OnceLock<Box<Seat>>]>,
    /// Pending timers of each seat at most.
    pub(crate) timers_max: u32,
    /// Numbers coprime to that of the first seats.
    pub(crate) strides: Box<[u32]>,
    /// Timers set by threads that are no workers.
    pub(crate) outside: Timers<Action>,
    /// What threads that are no workers count.
    pub(crate) outside_stats: Stats,
    pub(crate) handlers: Registry,
    pub(crate) shuffled: bool,
    /// Whether the first seat is for threads in `block_on`.
    pub(crate) callers_drive: bool,
    pub(crate) closing: Closing,
    pub(crate) names: Names,
    pub(crate) dead_letters: Option<dead_letter::Observer>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
    /// The runtime of tokio's in whose context everything here runs, if there is one.
    #[cfg(feature = "tokio")]
    pub(crate) bridge: Option<Arc<crate::bridge::runtime::Bridge>>,
    /// How many threads wait until all is idle: the test clock stands still for them.
    pub(crate) idle_waits: AtomicU32,
    /// Those of them that do not drive.
    pub(crate) idle_watchers: Mutex<Vec<Arc<Parker>>>,
    /// Completions that are out, root futures that were woken, and threads from outside that bring
    /// a process: the test clock stands still for them.
    pub(crate) outstanding: AtomicU32,
    pub(crate) keeper: Keeper,
    pub(crate) beacon: Beacon,
    pub(crate) poller: Poller,
    /// Sleeps for which there was no timer, and whether there are any.
    pub(crate) timer_waiters: Mutex<Vec<Waker>>,
    pub(crate) has_timer_waiters: AtomicBool,
    /// Where coroutines get their stacks, if they are enabled.
    pub(crate) stacks: Option<Stacks>,
    pub(crate) stacks_limit: usize,
    /// What a coroutine's stack holds at least, unless it says otherwise.
    pub(crate) stack_bytes: usize,
    /// Coroutines for which there was no stack, and whether there are any.
    pub(crate) stack_waiters: Mutex<Vec<Waker>>,
    pub(crate) has_stack_waiters: AtomicBool,
    /// Coroutines that have begun, and stay nowhere.
    pub(crate) migrating: AtomicU32,
    pub(crate) helpers: Helpers,
    /// Callers without a seat, by number: each is here once, until the seat is left or it goes.
    pub(crate) callers: Mutex<BTreeMap<u64, Waker>>,
    pub(crate) last_caller: AtomicU64,
    /// Who waits for processes to end, by number: until how many are left, and whom to wake then.
    pub(crate) end_waiters: Mutex<BTreeMap<u64, (u64, Waker)>>,
    pub(crate) last_end_waiter: AtomicU64,
    pub(crate) threads_refused: AtomicU32,
    pub(crate) threads_started: AtomicU32,
    /// Until when no thread is started, since the system has just refused one.
    pub(crate) threads_rest_until: AtomicU64,
    pub(crate) threads: ThreadOptions,
    pub(crate) watchdog: Watchdog,
    /// Blocking sections that were entered.
    pub(crate) blocking_sections: AtomicU64,
    pub(crate) ages: Mutex<crate::scheduler::stats::Ages>,
    /// Wakers of combinators inside processes, by slot, to be woken at the beginning of the next
    /// step. Few processes leave any.
    pub(crate) foreign: Mutex<BTreeMap<u32, Vec<Waker>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    pub(crate) fn seat(&self, seat: SeatId) -> &Seat {
        match self.seats.get(seat.0 as usize) {
            Some(place) => place,
            None => self.extra_seat(seat),
        }
    }

    #[cold]
    fn extra_seat(&self, seat: SeatId) -> &Seat {
        let make = || Box::new(Seat::new(self.world.generator(seat.0.into()), self.timers_max));
        self.extra_seats[seat.0 as usize - self.seats.len()].get_or_init(make)
    }

    /// A seat, if it has been used.
    pub(crate) fn made_seat(&self, seat: SeatId) -> Option<&Seat> {
        let number = seat.0 as usize;
        self.seats
            .get(number)
            .or_else(|| self.extra_seats.get(number - self.seats.len())?.get().map(|seat| &**seat))
    }

    /// Every seat that was ever used.
    pub(crate) fn used_seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats
            .iter()
            .chain(self.extra_seats.iter().filter_map(|seat| seat.get().map(|seat| &**seat)))
    }

    /// Every seat in which there may be anything.
    #[inline]
    pub(crate) fn all_seats(&self) -> impl Iterator<Item = &Seat> {
        let extra = (self.idle.reach() as usize).saturating_sub(self.seats.len());
        // One that is not made yet has nothing in it.
        self.seats.iter().chain(
            self.extra_seats[..extra].iter().filter_map(|seat| seat.get().map(|seat| &**seat)),
        )
    }

    /// How many seats there are to which processes can be bound: as many as the scheduler was built
    /// wide.
    pub(crate) fn first_seats(&self) -> u32 {
        self.seats.len() as u32
    }

    /// How many threads there may be.
    pub(crate) fn max_threads(&self) -> usize {
        self.seats.len() + self.extra_seats.len()
    }

    /// How many workers may run at once.
    pub(crate) fn width(&self) -> usize {
        self.idle.width() as usize
    }

    /// Whether a watchdog writes the beacon.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchdog.is_running()
    }

    pub(crate) fn strides(&self) -> &[u32] {
        &self.strides
    }

    pub(crate) fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    pub(crate) fn dead_letters(&self) -> Option<&dead_letter::Observer> {
        self.dead_letters.as_ref()
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn handlers(&self) -> &Registry {
        &self.handlers
    }

    pub(crate) fn leave_foreign(&self, slot: u32, waker: Waker) {
        self.foreign.lock().entry(slot).or_default().push(waker);
    }

    pub(crate) fn take_foreign(&self, slot: u32) -> Vec<Waker> {
        let mut foreign = self.foreign.lock();
        foreign.remove(&slot).unwrap_or_default()
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me
            .upgrade()
            .expect("[type-stable] a scheduler is there while a slot of it is occupied")
    }
}

impl Drop for Shared {
    /// Whoever holds the last address of a process may come here, also a worker of another
    /// scheduler. So what is of the user's is dropped one by one.
    fn drop(&mut self) {
        for timers in self.used_seats().map(|seat| &seat.timers).chain([&self.outside]) {
            timers.clear(&mut drop_guarded);
        }
        drop_each(mem::take(&mut *self.timer_waiters.lock()));
        drop_each(mem::take(&mut *self.stack_waiters.lock()));
        drop_each(mem::take(&mut *self.callers.lock()).into_values());
        drop_each(mem::take(&mut *self.end_waiters.lock()).into_values());
        drop_each(mem::take(&mut *self.foreign.lock()).into_values().flatten());
        drop_each(self.handlers.take());
        drop_guarded(self.dead_letters.take());
        drop_guarded(self.relay.take());
        drop_guarded(self.threads.on_start.take());
        drop_guarded(self.threads.on_stop.take());
        drop_guarded(self.watchdog.take_observer());
        #[cfg(feature = "tokio")]
        drop_guarded(self.bridge.take());
    }
}
