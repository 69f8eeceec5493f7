//! What the workers of a scheduler, and everybody who knows one of its processes, share.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{fmt, io, mem};

use procession_coroutine::Stacks;
use procession_queue::Global;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use crate::coroutine::helpers::Helpers;
use crate::io::reactor::Poller;
use crate::machine::command::Registry;
use crate::mailbox::dead_letter;
use crate::mailbox::relay::Relay;
use crate::observe::snapshot;
use crate::process::slot::{Pin, Ready, Slot, Table, prefetch_slot};
use crate::process::state::{State, Wake};
use crate::process::unwind::{drop_each, drop_guarded};
use crate::process::waker;
use crate::relations::names::Names;
use crate::scheduler::block_on::Root;
use crate::scheduler::current::{Hold, Origin};
use crate::scheduler::driver::{Keeper, Kept, Owed};
use crate::scheduler::idle::{Idle, Rest};
use crate::scheduler::lifo_slot::Next;
use crate::scheduler::pace::Beacon;
use crate::scheduler::seat_id::{NEVER, SeatId};
use crate::scheduler::shutdown::Closing;
use crate::scheduler::stats::{Count, Stats};
use crate::scheduler::worker::{Core, Queues};
use crate::scheduler::{block_on, current, shutdown, worker};
use crate::sys::{Cpus, Parker, ThreadFile, World};
use crate::time::action::Action;
use crate::time::sleep_on;
use crate::time::timers::Timers;
use crate::watchdog::Watchdog;
use crate::{Pid, relations};

/// A worker's place, as the others see it.
pub(crate) struct Seat {
    pub(crate) queues: Queues,
    pub(crate) next: Next<Slot>,
    /// Processes that run here only.
    pub(crate) bound: Global<Ready>,
    pub(crate) timers: Timers<Action>,
    /// Odd while a step runs: twice the number of steps that have ended. Written by the worker without a read-modify-write.
    pub(crate) step: AtomicU64,
    /// Whose step runs: the index of its slot and 1; 0 once that has ended. For the watchdog, as are the next two, and for snapshots.
    pub(crate) running: AtomicU32,
    /// Whether the thread is in a blocking section.
    pub(crate) in_section: AtomicBool,
    /// The system's number for the thread; 0 if none sits there.
    pub(crate) thread: AtomicU32,
    /// What tells the watchdog the state of that thread. Kept open by the watchdog, closed when the thread leaves.
    pub(crate) thread_file: Mutex<Option<ThreadFile>>,
    pub(crate) parker: Parker,
    pub(crate) stats: Stats,
    /// What the thread waits for, if that is the future of a `block_on` (`scheduler/wait_cycle.rs`).
    pub(crate) waits_for: Mutex<Option<Arc<Root>>>,
    /// Coroutines that have begun here, and so stay here.
    pub(crate) coroutines: AtomicU32,
    /// What the worker keeps to itself, while no thread sits here.
    core: Mutex<Option<Core>>,
}

/// How long no thread is started after the system has refused one: it will hardly have changed its mind, and to ask costs a system call.
const REFUSAL_REST: u64 = 10_000_000;

/// A function that is called on threads of the scheduler.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// What the builder says about threads.
pub(crate) struct ThreadOptions {
    pub(crate) keep_alive: Duration,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// On which processors they run, if not on all that the program may use.
    pub(crate) cpus: Option<Cpus>,
}

impl Seat {
    pub(crate) fn new(generator: fastrand::Rng, timers: u32) -> Self {
        let (core, queues) = Core::new(generator);
        Self {
            queues,
            next: Next::empty(),
            bound: Global::new(),
            timers: Timers::new(timers),
            step: AtomicU64::new(0),
            running: AtomicU32::new(0),
            in_section: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            thread_file: Mutex::new(None),
            parker: Parker::default(),
            stats: Stats::default(),
            waits_for: Mutex::new(None),
            coroutines: AtomicU32::new(0),
            core: Mutex::new(Some(core)),
        }
    }

    /// Whether nothing is left in a vacant seat.
    fn is_empty(&self) -> bool {
        self.queues.are_empty() && self.bound.is_empty() && self.next.look().is_null() && self.timers.next() == NEVER
    }
}

/// What the workers of a scheduler, and everybody who knows one of its processes, share.
pub(crate) struct Shared {
    pub(crate) me: Weak<Self>,
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) world: World,
    pub(crate) table: Table,
    pub(crate) global: Global<Ready>,
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
    pub(crate) bridge: Option<Arc<crate::bridge::Bridge>>,
    /// How many threads wait until all is idle: the test clock stands still for them.
    pub(crate) idle_waits: AtomicU32,
    /// Those of them that do not drive.
    pub(crate) idle_watchers: Mutex<Vec<Arc<Parker>>>,
    /// Completions that are out, root futures that were woken, and threads from outside that bring a process: the test clock stands still
    /// for them.
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
    pub(crate) ages: Mutex<snapshot::Ages>,
    /// Wakers of combinators inside processes, by slot, to be woken at the beginning of the next step. Few processes leave any.
    pub(crate) foreign: Mutex<BTreeMap<u32, Vec<Waker>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
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
        self.seats.get(number).or_else(|| self.extra_seats.get(number - self.seats.len())?.get().map(|seat| &**seat))
    }

    /// Every seat that was ever used.
    pub(crate) fn used_seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().chain(self.extra_seats.iter().filter_map(|seat| seat.get().map(|seat| &**seat)))
    }

    /// Every seat in which there may be anything.
    #[inline]
    pub(crate) fn all_seats(&self) -> impl Iterator<Item = &Seat> {
        let extra = (self.idle.reach() as usize).saturating_sub(self.seats.len());
        // One that is not made yet has nothing in it.
        self.seats.iter().chain(self.extra_seats[..extra].iter().filter_map(|seat| seat.get().map(|seat| &**seat)))
    }

    /// How many seats there are to which processes can be bound: as many as the scheduler was built wide.
    pub(crate) fn first_seats(&self) -> u32 {
        self.seats.len() as u32
    }

    /// How many threads there may be.
    pub(crate) fn threads_max(&self) -> usize {
        self.seats.len() + self.extra_seats.len()
    }

    /// How many workers may run at once.
    pub(crate) fn width(&self) -> usize {
        self.idle.width() as usize
    }

    /// Changes how many workers may run at once.
    pub(crate) fn set_width(&self, width: u32) {
        self.idle.set_width(width);
        if self.has_queued() {
            self.announce_many(width as usize);
        }
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

    pub(crate) fn thread_counts(&self) -> (u32, u32) {
        (self.threads_started.load(Relaxed), self.threads_refused.load(Relaxed))
    }

    /// Wakes a worker for something just queued, if none searches.
    #[inline]
    pub(crate) fn announce(&self) {
        if let Some(seat) = self.idle.claim_one() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, by a thread that will not come to it itself: a worker that was woken before, and counts as searching, may be late.
    pub(crate) fn announce_from_outside(&self) {
        let written_off = || match self.idle.write_off_if_late(|| self.world.now()) {
            0 => None,
            late => {
                self.watchdog.count_late(late);
                self.idle.claim_one()
            }
        };
        if let Some(seat) = self.idle.claim_one().or_else(written_off) {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, for the only entry in the deque of this worker.
    #[inline]
    pub(crate) fn announce_only(&self) {
        if let Some(seat) = self.idle.claim_one_unless_napping() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, for what this worker will come to itself.
    #[inline]
    pub(crate) fn announce_in_sight(&self) {
        if let Some(seat) = self.idle.claim_one_in_sight() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, for as many entries as `count`, which others may take: each is worth a worker of its own, whoever searches.
    pub(crate) fn announce_many(&self, count: usize) {
        fence(SeqCst);
        for _ in 0..count.min(self.width()) {
            match self.idle.claim() {
                Some(seat) => self.wake_seat(seat),
                None => return,
            }
        }
    }

    /// Brings a seat to work that was claimed: unparks its thread, or starts one.
    #[cold]
    fn wake_seat(&self, seat: SeatId) {
        self.idle.note_waking(seat, self.world.now());
        let place = self.seat(seat);
        let vacant = place.core.lock().expect("nothing that can panic runs under this lock").is_some();
        if !vacant {
            place.parker.unpark();
            // It may be late.
            return self.rouse_watchdog();
        }
        // When it has ended, nothing is left to do, and the last thread to leave would start the next.
        if !self.has_ended() && self.start_thread(seat) {
            return self.rouse_watchdog();
        }
        self.idle.decline(seat);
        // It was counted as searching: whoever relied on that is owed another, of those whose threads are there.
        if let Some(seat) = self.idle.claim_parked() {
            self.idle.note_waking(seat, self.world.now());
            self.seat(seat).parker.unpark();
        }
    }

    /// Starts a thread for a claimed, vacant seat, unless the system refuses.
    fn start_thread(&self, seat: SeatId) -> bool {
        let Some(shared) = self.me.upgrade() else {
            return false;
        };
        // Relaxed: whoever reads an old value tries once more than need be.
        if !self.world.is_test() && self.world.now() < self.threads_rest_until.load(Relaxed) {
            return false;
        }
        match self.try_start_thread(shared, seat) {
            Ok(()) => true,
            Err(_) => {
                self.threads_refused.fetch_add(1, Relaxed);
                self.threads_rest_until.store(self.world.now().saturating_add(REFUSAL_REST), Relaxed);
                false
            }
        }
    }

    fn try_start_thread(&self, shared: Arc<Self>, seat: SeatId) -> io::Result<()> {
        let name = format!("{}-{}", self.name, seat.0);
        self.world.start_thread(name, move || {
            let core = shared.take_core(seat).expect("[seat] a claimed seat's core is left where it is");
            worker::run_thread(shared, seat, core);
        })?;
        self.threads_started.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Returns who is left. If that is nobody but seats that are vacant, a thread is started for one, unless the system refuses: only it
    /// knows whether such a seat is of any use.
    pub(crate) fn rest(&self) -> Rest {
        let rest = self.idle.rest();
        if rest.has_thread || !rest.has_vacant {
            return rest;
        }
        if let Some(seat) = self.idle.claim() {
            self.wake_seat(seat);
        }
        self.idle.rest()
    }

    /// The first thread is started at once, so that a system that refuses threads says so when it can be handled.
    pub(crate) fn start_first_thread(self: &Arc<Self>) -> io::Result<()> {
        let seat = SeatId(0);
        if !self.idle.claim_this(seat) {
            return Ok(());
        }
        self.idle.note_waking(seat, self.world.now());
        self.try_start_thread(Arc::clone(self), seat)?;
        self.rouse_watchdog();
        Ok(())
    }

    fn take_core(&self, seat: SeatId) -> Option<Core> {
        self.seat(seat).core.lock().expect("nothing that can panic runs under this lock").take()
    }

    /// Whether this thread has a seat of this scheduler, also one whose step waits for another scheduler here.
    pub(crate) fn is_worked_for_here(&self) -> bool {
        let this = World::thread_number();
        // Relaxed: this thread alone writes its own number.
        self.used_seats().any(|seat| seat.thread.load(Relaxed) == this)
    }

    /// The seat for callers, if there is one and no other caller sits there.
    pub(crate) fn take_callers_seat(&self) -> Option<(SeatId, Core)> {
        let seat = self.idle.claim_absent(current::thread_number())?;
        Some((seat, self.take_core(seat).expect("[seat] an absent seat's core is left where it is")))
    }

    pub(crate) fn has_free_seat(&self) -> bool {
        self.idle.has_absent(current::thread_number())
    }

    /// A root future was woken: until it has been polled, it is as if something ran. Counted as a completion that is out, on the test clock only.
    pub(crate) fn count_ready_root(&self) {
        self.begin_outstanding();
    }

    pub(crate) fn uncount_ready_root(&self) {
        self.end_outstanding();
    }

    /// Wakes who sits in the seat for callers, if he is parked.
    pub(crate) fn wake_caller(&self) {
        let seat = SeatId(0);
        if self.idle.claim_this(seat) {
            self.idle.note_waking(seat, self.world.now());
            self.seat(seat).parker.unpark();
        }
    }

    pub(crate) fn callers_drive(&self) -> bool {
        self.callers_drive
    }

    /// A thread leaves its seat. What is queued there is for the others, or for who sits there next.
    pub(crate) fn vacate(&self, seat: SeatId, core: Core) {
        self.seat(seat).thread.store(0, Relaxed);
        self.watchdog.close_file(self.seat(seat));
        *self.seat(seat).core.lock().expect("nothing that can panic runs under this lock") = Some(core);
        let for_callers = self.callers_drive && seat.0 == 0;
        // Coroutines that have begun here stay on this thread.
        let keeps = self.seat(seat).coroutines.load(Relaxed) > 0;
        let left = self.idle.leave(seat, for_callers, if keeps { current::thread_number() } else { 0 });
        if left.all_parked {
            self.tell_all_idle();
        }
        if !for_callers && !self.seat(seat).bound.is_empty() && !self.has_ended() && self.idle.claim_this(seat) {
            self.wake_seat(seat);
        }
        let least = self.first_seats().max(self.idle.width());
        self.idle.lower_reach(least, |seat| self.seat(seat).is_empty());
        self.recheck(left.nobody_awake);
        if for_callers {
            // Those who wait without a seat: one of them sits down now.
            self.unpark_idle_watchers();
            let callers = mem::take(&mut *self.callers.lock().expect("nothing that can panic runs under this lock"));
            for caller in callers.into_values() {
                drop(crate::process::unwind::guarded(|| caller.wake()));
            }
        }
    }

    /// `Recheck` for others, after a permit was given up: is there anything that its worker leaves behind? `nobody_awake` if it was the last.
    pub(crate) fn recheck(&self, nobody_awake: bool) {
        if self.has_queued() {
            return self.announce();
        }
        if !nobody_awake {
            return;
        }
        let earliest = self.next_deadline();
        if earliest != NEVER || self.poller.kernel().is_some() {
            self.settle_debt(self.keeper.attend(earliest));
        }
    }

    /// The step of the worker in `seat` blocks: another may run in its place. What only that worker would have come to is queued already.
    pub(crate) fn give_permit_back(&self, seat: SeatId) {
        let nobody_awake = self.idle.give_back(seat);
        self.recheck(nobody_awake);
    }

    /// A number for a caller.
    pub(crate) fn number_caller(&self) -> u64 {
        // Relaxed: only that they differ matters.
        self.last_caller.fetch_add(1, Relaxed)
    }

    /// A caller waits without a seat, and wants to know when it is free.
    pub(crate) fn wait_for_seat(&self, number: u64, caller: &Waker) {
        let mut callers = self.callers.lock().expect("nothing that can panic runs under this lock");
        // The waker is that of a root, and no code of the user's.
        callers.entry(number).or_insert_with(|| caller.clone());
    }

    /// A caller does not wait for the seat any more.
    pub(crate) fn forget_caller(&self, number: u64) {
        let left = self.callers.lock().expect("nothing that can panic runs under this lock").remove(&number);
        drop(left);
    }

    /// Queues a process that runs on one worker only, and wakes that one.
    pub(crate) fn enqueue_bound(&self, seat: SeatId, ready: Ready) {
        self.seat(seat).bound.push(ready);
        fence(SeqCst);
        if self.idle.claim_this(seat) {
            self.wake_seat(seat);
        }
    }

    /// Whether anything is queued that any worker may take, next slots apart.
    pub(crate) fn has_queued(&self) -> bool {
        !self.global.is_empty() || self.all_seats().any(|seat| !seat.queues.are_empty())
    }

    /// Whether anything is queued at all.
    pub(crate) fn has_work(&self) -> bool {
        self.has_queued() || self.all_seats().any(|seat| !seat.bound.is_empty() || !seat.next.look().is_null())
    }

    /// The earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.all_seats().map(|seat| seat.timers.next()).fold(self.outside.next(), u64::min)
    }

    /// Fires what is due in `timers`; says how many were.
    pub(crate) fn fire(&self, timers: &Timers<Action>) -> u32 {
        // The clock is read only if there is a deadline.
        let next = timers.next();
        if next == NEVER {
            return 0;
        }
        let now = self.world.now();
        if next > now {
            return 0;
        }
        let fired = {
            // What is held back is neither a timer nor ready.
            let _stopped = self.stop_clock();
            let mut ahead = Ahead::default();
            timers.run(now, &mut |action: Action| ahead.fire(action)).fired
        };
        if fired > 0 {
            self.note_timer_room();
        }
        fired
    }

    /// A sleep found no timer left: it is woken when there may be one.
    pub(crate) fn wait_for_timer(&self, waker: Waker) {
        self.timer_waiters.lock().expect("nothing that can panic runs under this lock").push(waker);
        self.has_timer_waiters.store(true, SeqCst);
    }

    /// A coroutine has begun: on this seat, if it stays on one.
    pub(crate) fn count_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_add(1, Relaxed);
    }

    /// A coroutine has ended.
    pub(crate) fn uncount_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_sub(1, Relaxed);
    }

    /// Whether any coroutine has begun and not ended.
    pub(crate) fn has_coroutines(&self) -> bool {
        self.migrating.load(Relaxed) > 0 || self.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }

    /// A coroutine found no stack left: it is woken when there may be one.
    pub(crate) fn wait_for_stack(&self, waker: Waker) {
        self.stack_waiters.lock().expect("nothing that can panic runs under this lock").push(waker);
        self.has_stack_waiters.store(true, SeqCst);
    }

    /// A stack came back.
    #[cold]
    pub(crate) fn wake_stack_waiters(&self) {
        self.has_stack_waiters.store(false, SeqCst);
        let waiters =
            std::mem::take(&mut *self.stack_waiters.lock().expect("nothing that can panic runs under this lock"));
        for waiter in waiters {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }

    /// There may be room for a timer again.
    #[inline]
    pub(crate) fn note_timer_room(&self) {
        if self.has_timer_waiters.load(SeqCst) {
            self.wake_timer_waiters();
        }
    }

    #[cold]
    fn wake_timer_waiters(&self) {
        self.has_timer_waiters.store(false, SeqCst);
        let waiters =
            std::mem::take(&mut *self.timer_waiters.lock().expect("nothing that can panic runs under this lock"));
        for waiter in waiters {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }

    /// A thread that is no worker set a timer for `when`: whoever keeps the time must know.
    pub(crate) fn outside_timer_set(&self, when: u64) {
        self.settle_debt(self.keeper.timer_set(when));
    }

    fn settle_debt(&self, owed: Owed) {
        match owed {
            Owed::Nothing => {}
            Owed::Nudge(seat) => self.seat(seat).parker.unpark(),
            Owed::Wake => self.announce(),
        }
    }

    /// Until when a worker is to park that found `earliest` to be the next deadline, if it is to keep the time.
    pub(crate) fn keep_time(&self, seat: SeatId, earliest: u64) -> Option<u64> {
        match self.keeper.keep(seat, earliest) {
            Kept::Until(deadline) => Some(deadline),
            Kept::ByAnother => None,
            Kept::ByNudged(keeper) => {
                self.seat(keeper).parker.unpark();
                None
            }
        }
    }

    pub(crate) fn leave_keeping(&self, seat: SeatId) {
        self.keeper.leave(seat);
    }

    /// Something is due, but the worker in `seat` has no permit; says whether it kept the time, and so must look again.
    pub(crate) fn resign_keeping(&self, seat: SeatId) -> bool {
        self.keeper.resign(seat)
    }

    /// Whether the test clock may move when all is idle.
    pub(crate) fn may_advance(&self) -> bool {
        let nothing_is_out = || self.outstanding() == 0 && !self.poller.is_waited_for();
        self.world.is_test() && self.idle_waits.load(Relaxed) == 0 && nothing_is_out()
    }

    /// Who finds none, and then no work, knows that nothing is on its way; in the other order it may have been queued in between.
    pub(crate) fn outstanding(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `end_outstanding`: what was queued before is seen by who sees this.
        self.outstanding.load(Acquire)
    }

    /// A completion is out.
    pub(crate) fn begin_outstanding(&self) {
        if self.world.is_test() {
            // Relaxed: what follows and shows that something is on its way is published by an ordering of its own.
            self.outstanding.fetch_add(1, Relaxed);
        }
    }

    /// A completion has come in, or was dropped.
    pub(crate) fn end_outstanding(&self) {
        if self.world.is_test() && self.outstanding.fetch_sub(1, Release) == 1 {
            // Somebody must look whether the clock may move now.
            self.announce();
        }
    }

    /// On the test clock: time stands still while a thread that is no worker of this scheduler brings a process, from before others can see
    /// that it is to run until it is queued.
    #[inline]
    pub(crate) fn stop_clock(&self) -> Option<ClockStop<'_>> {
        (self.world.is_test() && !current::is_worker_of(self)).then(|| {
            self.begin_outstanding();
            ClockStop(self)
        })
    }

    /// The last worker has parked.
    #[cold]
    pub(crate) fn tell_all_idle(&self) {
        self.unpark_idle_watchers();
        if self.callers_drive {
            self.seat(SeatId(0)).parker.unpark();
        }
    }

    fn unpark_idle_watchers(&self) {
        let watchers = self.idle_watchers.lock().expect("nothing that can panic runs under this lock");
        watchers.iter().for_each(|watcher| watcher.unpark());
    }

    pub(crate) fn run_until_idle(self: &Arc<Self>) {
        self.idle_waits.fetch_add(1, Relaxed);
        let watcher = Arc::new(Parker::default());
        let watchers = || self.idle_watchers.lock().expect("nothing that can panic runs under this lock");
        watchers().push(Arc::clone(&watcher));
        // If somebody else drives, or threads do, this waits until they are idle, or until the seat is free.
        let is_idle = || self.idle.all_parked_and(|| self.outstanding() == 0 && !self.has_work());
        while !(block_on::run_until_idle(self) || is_idle()) {
            self.world.park(&watcher, NEVER);
        }
        watchers().retain(|other| !Arc::ptr_eq(other, &watcher));
        self.idle_waits.fetch_sub(1, Relaxed);
        if self.world.is_test() {
            // The clock may move again, if somebody else drives.
            self.announce();
        }
    }

    pub(crate) fn totals(&self, count: impl Fn(&Stats) -> &Count) -> u64 {
        self.used_seats().map(|seat| count(&seat.stats).get()).sum::<u64>() + count(&self.outside_stats).get()
    }

    /// Processes that have not ended.
    pub(crate) fn alive(&self) -> u64 {
        // Ended first: each of those was spawned before, so the difference is never too small, and 0 is right.
        let ended = self.totals(|stats| &stats.ended);
        self.totals(|stats| &stats.spawned) - ended
    }

    pub(crate) fn leave_foreign(&self, slot: u32, waker: Waker) {
        self.foreign.lock().expect("nothing that can panic runs under this lock").entry(slot).or_default().push(waker);
    }

    pub(crate) fn take_foreign(&self, slot: u32) -> Vec<Waker> {
        let mut foreign = self.foreign.lock().expect("nothing that can panic runs under this lock");
        foreign.remove(&slot).unwrap_or_default()
    }

    /// A process that was counted as spawned was refused: it counts as ended for who waits, and as neither for who looks.
    pub(crate) fn count_refused(&self) {
        current::count(self, |stats| &stats.refused, 1);
        current::count(self, |stats| &stats.ended, 1);
        self.note_end();
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("[type-stable] a scheduler is there while a slot of it is occupied")
    }

    /// A process has ended.
    #[inline]
    pub(crate) fn note_end(&self) {
        if self.closing.phase() != shutdown::OPEN {
            self.note_end_while_closing();
        }
    }

    /// The same again, by a worker that parks, after its `ParkFence`: `note_end` looks at the phase without a fence, which every end would pay
    /// for, and may so miss that a shutdown has just begun.
    pub(crate) fn note_end_at_leisure(&self) {
        if !matches!(self.closing.phase(), shutdown::OPEN | shutdown::ENDED) {
            self.note_end_while_closing();
        }
    }

    #[cold]
    fn note_end_while_closing(&self) {
        // Of the closing protocol.
        fence(SeqCst);
        let phase = self.closing.phase();
        let alive = self.alive();
        if phase == shutdown::TERMINATING && alive == 0 {
            self.end();
        }
        // Only those who find what they wait for: one who looks in vain and waits again would be woken again, and so on.
        let mut waiters = self.end_waiters.lock().expect("nothing that can panic runs under this lock");
        let woken: Vec<_> = waiters.extract_if(.., |_, (left, _)| alive <= *left).collect();
        drop(waiters);
        for (_, (_, waiter)) in woken {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.closing.phase() == shutdown::ENDED
    }

    /// No process is left, and none comes: the threads leave.
    fn end(&self) {
        self.closing.enter(shutdown::ENDED);
        self.watchdog.dismiss();
        for seat in self.used_seats() {
            seat.parker.unpark();
        }
        // What pending functions hold may hold this scheduler. A sleep of a root future is woken, and sets its timer anew.
        for timers in self.used_seats().map(|seat| &seat.timers).chain([&self.outside]) {
            timers.clear(&mut |action: Action| action.give_up());
        }
        self.give_up_descriptors();
        #[cfg(feature = "tokio")]
        if let Some(bridge) = &self.bridge {
            bridge.note_ended();
        }
    }

    /// Whether a new process is taken; `inside` if one of the scheduler's own processes spawns it.
    pub(crate) fn takes_processes(&self, inside: bool) -> bool {
        // After the count: either a shutdown sees that, or this sees the shutdown.
        match self.closing.phase_after_publishing() {
            shutdown::OPEN => true,
            shutdown::STOPPING => inside,
            _ => false,
        }
    }

    /// After a process was counted and made reachable: what is to become of it, if a shutdown began meanwhile. `inside` if one of the
    /// scheduler's own processes spawned it.
    pub(crate) fn after_publishing(&self, slot: &Slot, inside: bool) -> Newcomer {
        match self.closing.phase_after_publishing() {
            shutdown::OPEN => Newcomer::Runs,
            shutdown::STOPPING => {
                if !inside {
                    // It was taken before the shutdown began, which may have passed its slot. It is ACTIVE, and its maker queues it.
                    let _ = slot.state.cancel();
                }
                Newcomer::Runs
            }
            // The workers may have left already.
            _ => Newcomer::Ends,
        }
    }

    /// Whether who drives this scheduler must end its processes before he goes: nobody else may come.
    pub(crate) fn must_be_drained(&self) -> bool {
        self.callers_drive && self.closing.phase() == shutdown::TERMINATING
    }

    fn each_process(&self, mut each: impl FnMut(&Slot)) {
        for index in 0..self.table.made() {
            if let Some(pin) = self.table.pin_any(index) {
                each(&pin);
            }
        }
    }

    pub(crate) fn cancel_all(&self, except: Option<Pid>) {
        self.closing.enter(shutdown::STOPPING);
        if let Some(caller) = except.and_then(find) {
            // Its supervisor would wait for it, and it for its supervisor.
            relations::release_from_supervisor(&caller);
        }
        self.each_process(|slot| {
            // Who has a supervisor is left to it, in its order. One whose supervisor ends just now is ended by its link.
            let in_hand = relations::supervisor(slot).and_then(find).is_some();
            if Some(slot.pid()) != except && !in_hand {
                cancel(slot);
            }
        });
    }

    pub(crate) fn terminate_all(&self, except: Option<Pid>) {
        self.closing.enter(shutdown::TERMINATING);
        self.each_process(|slot| {
            if Some(slot.pid()) != except {
                terminate(slot);
            }
        });
        if self.alive() == 0 {
            self.end();
        }
    }
}

impl Drop for Shared {
    /// Whoever holds the last address of a process may come here, also a worker of another scheduler.
    /// So what is of the user's is dropped one by one.
    fn drop(&mut self) {
        let locked = "nothing that can panic runs under this lock";
        for timers in self.used_seats().map(|seat| &seat.timers).chain([&self.outside]) {
            timers.clear(&mut drop_guarded);
        }
        drop_each(mem::take(&mut *self.timer_waiters.lock().expect(locked)));
        drop_each(mem::take(&mut *self.stack_waiters.lock().expect(locked)));
        drop_each(mem::take(&mut *self.callers.lock().expect(locked)).into_values());
        drop_each(mem::take(&mut *self.end_waiters.lock().expect(locked)).into_values());
        drop_each(mem::take(&mut *self.foreign.lock().expect(locked)).into_values().flatten());
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

/// While it lasts, the test clock stands still.
#[must_use]
pub(crate) struct ClockStop<'a>(&'a Shared);

impl Drop for ClockStop<'_> {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

/// What is to become of a process that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Newcomer {
    Runs,
    Ends,
}

/// Wakes a process.
#[inline]
pub(crate) fn wake(slot: &Slot) {
    if !current::give_way_if_current(slot) {
        bring(slot, State::wake);
    }
}

pub(crate) fn cancel(slot: &Slot) {
    bring(slot, State::cancel);
}

pub(crate) fn terminate(slot: &Slot) {
    bring(slot, State::terminate);
}

/// Tells a process's state of an event, and queues the process if that makes it ready.
#[inline]
fn bring(slot: &Slot, event: impl FnOnce(&State) -> Wake) {
    // Before it is seen to be ready: the clock would move on while nobody could run it.
    let _stopped = slot.shared().stop_clock();
    if event(&slot.state) == Wake::Enqueue {
        // SAFETY: the event made it ACTIVE.
        #[expect(unsafe_code, reason = "the right to queue a process is what the state protocol hands out")]
        current::enqueue(unsafe { Ready::new(slot) }, Origin::Woken);
    }
}

/// How many wakes wait until the processor has fetched whom they wake. With 16 a million sleepers took as long.
const AHEAD: usize = 8;

/// Actions of timers in their order, of which wakes of processes are held back for a moment: of many processes that slept, none is in a
/// cache, and the processor fetches several as fast as one. With [`Ready::prefetch`], a million sleepers cost 1010 ns each on one processor instead of 1170.
#[derive(Default)]
struct Ahead {
    wakers: [Option<Waker>; AHEAD],
    /// How many were put in.
    turn: usize,
}

impl Ahead {
    fn fire(&mut self, action: Action) {
        match action {
            // What wakes others may be the user's code, and may take long.
            Action::Wake(waker) if let Some(slot) = waker::slot_of(&waker) => {
                prefetch_slot(slot);
                let before = self.wakers[self.turn % AHEAD].replace(waker);
                self.turn += 1;
                if let Some(before) = before {
                    Action::Wake(before).fire();
                }
            }
            action => {
                self.flush();
                action.fire();
            }
        }
    }

    fn flush(&mut self) {
        for _ in 0..AHEAD {
            let next = self.wakers[self.turn % AHEAD].take();
            self.turn += 1;
            if let Some(waker) = next {
                Action::Wake(waker).fire();
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Schedulers that may still be reached by PID.
static REACHABLE: Mutex<BTreeMap<u32, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// Makes a scheduler reachable by PID.
pub(crate) fn make_reachable(shared: &Arc<Shared>) {
    let mut reachable = REACHABLE.lock().expect("nothing that can panic runs under this lock");
    reachable.retain(|_, shared| shared.strong_count() > 0);
    reachable.insert(shared.id, Arc::downgrade(shared));
}

/// Pins the process of a PID, if it is on this node and has not ended.
pub(crate) fn find(pid: Pid) -> Option<Pin> {
    if pid.node() != 0 {
        return None;
    }
    let shared = reach(pid.scheduler())?;
    shared.table.pin(pid.slot(), pid.generation()).filter(|slot| !slot.state.see().is_complete())
}

/// A scheduler by its number, if it is still there.
pub(crate) fn reach(id: u32) -> Option<Hold> {
    let here = current::here().filter(|shared| shared.id == id);
    here.or_else(|| {
        let reachable = REACHABLE.lock().expect("nothing that can panic runs under this lock");
        reachable.get(&id)?.upgrade().map(Hold::Shared)
    })
}

impl Shared {
    /// Waits until no more than `left` processes are alive, or until `deadline`.
    pub(crate) async fn wait_for_ends(self: &Arc<Self>, left: u64, deadline: u64) {
        let mut sleep = std::pin::pin!(sleep_on(Arc::clone(self), deadline));
        let waiter = EndWaiter { shared: self, number: self.last_end_waiter.fetch_add(1, Relaxed) };
        poll_fn(|task| {
            waiter.leave(left, task.waker());
            // `Leave` of the closing protocol.
            fence(SeqCst);
            if self.alive() <= left { Poll::Ready(()) } else { sleep.as_mut().poll(task) }
        })
        .await;
    }
}

/// Somebody who waits for processes to end; forgotten when he goes, since his waker may hold the scheduler.
struct EndWaiter<'a> {
    shared: &'a Shared,
    number: u64,
}

impl EndWaiter<'_> {
    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<u64, (u64, Waker)>) -> R) -> R {
        change(&mut self.shared.end_waiters.lock().expect("nothing that can panic runs under this lock"))
    }

    fn leave(&self, left: u64, waker: &Waker) {
        // Cloned and dropped outside the lock: both are the user's code.
        let new = waker.clone();
        drop_guarded(self.change(|waiters| waiters.insert(self.number, (left, new))));
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        drop_guarded(self.change(|waiters| waiters.remove(&self.number)));
    }
}
