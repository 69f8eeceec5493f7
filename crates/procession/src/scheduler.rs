//! A scheduler: its builder, what its workers share, and its end.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use procession_queue::{Global, deque, fifo};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use crate::action::Action;
use crate::closing::{self, Closing};
use crate::command::{CommandId, Handler, Registry};
use crate::context::Context;
use crate::handle::{Child, Handle};
use crate::idle::{Idle, SeatId};
use crate::keeper::{Keeper, Kept, NEVER, Owed};
use crate::next::Next;
use crate::slot::{Pin, Ready, Slot, Table};
use crate::snapshot::{self, Snapshot, UnfinishedProcess, WaitingProcess};
use crate::spawn::{SpawnError, SpawnOptions};
use crate::state::Wake;
use crate::time::{Instant, sleep_on};
use crate::timer::Timers;
use crate::worker::{self, Core, Hold, Origin};
use crate::world::{Parker, World, nanoseconds};
use crate::{Pid, Process};

/// Processes at once, unless the builder says otherwise: 2 GiB of control blocks.
const PROCESSES_DEFAULT: u32 = 1 << 24;
/// Pending timers of each worker, unless the builder says otherwise.
const TIMERS_DEFAULT: u32 = 1 << 24;
/// Workers at most: far beyond the CPUs that one machine has, and small enough that each may look at all others.
const WIDTH_MAX: usize = 1024;
/// What a shutdown keeps back from its deadline to terminate those who have not ended: a tenth, and at most this.
const TERMINATION_MAX: u64 = 100_000_000;

/// A number that one thread counts and all may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Only the count's owner may call this: it is no read-modify-write.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Ordering: Release pairs with the Acquire of `get`: what was counted before is seen by who sees this.
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Release);
    }

    /// Anybody may call this, if nobody calls `add`.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// What a worker counts. Each number has one writer, but for `stolen`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) parks: Count,
    pub(crate) searches: Count,
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    pub(crate) spawned: Count,
    pub(crate) ended: Count,
    /// Of both: spawns that came to nothing.
    pub(crate) refused: Count,
    pub(crate) panics: Count,
    pub(crate) sent: Count,
    pub(crate) received: Count,
    pub(crate) discarded: Count,
}

/// A worker's place, as the others see it.
pub(crate) struct Seat {
    pub(crate) deque: deque::Stealer<Ready>,
    pub(crate) fifo: fifo::Stealer<Ready>,
    pub(crate) next: Next<Slot>,
    /// Processes that run here only.
    pub(crate) bound: Global<Ready>,
    pub(crate) timers: Timers<Action>,
    /// Odd while a step runs: twice the number of steps that have ended. Written by the worker without a read-modify-write.
    pub(crate) step: AtomicU64,
    pub(crate) parker: Parker,
    pub(crate) stats: Stats,
    /// What the worker keeps to itself, while no thread sits here.
    core: Mutex<Option<Core>>,
}

/// What the workers of a scheduler, and everybody who knows one of its processes, share.
pub(crate) struct Shared {
    me: Weak<Self>,
    id: u32,
    name: String,
    pub(crate) world: World,
    table: Table,
    pub(crate) global: Global<Ready>,
    pub(crate) idle: Idle,
    seats: Box<[Seat]>,
    /// Numbers coprime to that of the seats.
    strides: Box<[u32]>,
    /// Timers set by threads that are no workers.
    pub(crate) outside: Timers<Action>,
    /// What threads that are no workers count.
    pub(crate) outside_stats: Stats,
    handlers: Registry,
    shuffled: bool,
    /// Whether the first seat is for threads in `block_on`.
    callers_drive: bool,
    closing: Closing,
    /// How many threads wait until all is idle: the test clock stands still for them.
    idle_waits: AtomicU32,
    /// Those of them that do not drive.
    idle_watchers: Mutex<Vec<Arc<Parker>>>,
    /// Completions that are out, and root futures that were woken: the test clock stands still for them.
    outstanding: AtomicU32,
    keeper: Keeper,
    /// Sleeps for which there was no timer, and whether there are any.
    timer_waiters: Mutex<Vec<Waker>>,
    has_timer_waiters: AtomicBool,
    /// Callers without a seat.
    callers: Mutex<Vec<Waker>>,
    /// Who waits for processes to end, by number: until how many are left, and whom to wake then.
    end_waiters: Mutex<BTreeMap<u64, (u64, Waker)>>,
    last_end_waiter: AtomicU64,
    threads_refused: AtomicU32,
    threads_started: AtomicU32,
    pub(crate) ages: Mutex<snapshot::Ages>,
    /// Wakers of combinators inside processes, by slot, to be woken at the beginning of the next step. Few processes leave any.
    foreign: Mutex<BTreeMap<u32, Vec<Waker>>>,
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
        &self.seats[seat.0 as usize]
    }

    pub(crate) fn all_seats(&self) -> &[Seat] {
        &self.seats
    }

    pub(crate) fn seats(&self) -> u32 {
        self.seats.len() as u32
    }

    /// How many workers may run at once.
    pub(crate) fn width(&self) -> usize {
        self.seats.len()
    }

    pub(crate) fn strides(&self) -> &[u32] {
        &self.strides
    }

    pub(crate) fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    pub(crate) fn handlers(&self) -> &Registry {
        &self.handlers
    }

    pub(crate) fn threads(&self) -> (u32, u32) {
        (self.threads_started.load(Relaxed), self.threads_refused.load(Relaxed))
    }

    /// Wakes a worker for something just queued, if none searches.
    #[inline]
    pub(crate) fn announce(&self) {
        if let Some(seat) = self.idle.claim_one() {
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

    /// Brings a seat to work that was claimed: unparks its thread, or starts one.
    #[cold]
    fn wake_seat(&self, mut seat: SeatId) {
        // At most once for each seat: one that cannot be brought to work is put where it is claimed last.
        for _ in 0..self.seats.len() {
            let place = self.seat(seat);
            let vacant = place.core.lock().expect("nothing that can panic runs under this lock").is_some();
            if !vacant {
                return place.parker.unpark();
            }
            if self.has_ended() {
                // Nothing is left to do, and the last thread to leave would start the next.
                return self.idle.decline(seat);
            }
            if self.start_thread(seat) {
                return;
            }
            self.idle.decline(seat);
            match self.idle.claim_one() {
                Some(next) if next != seat => seat = next,
                Some(same) => return self.idle.decline(same),
                None => return,
            }
        }
    }

    /// Starts a thread for a claimed, vacant seat, unless the system refuses.
    fn start_thread(&self, seat: SeatId) -> bool {
        let Some(shared) = self.me.upgrade() else {
            return false;
        };
        let name = format!("{}-{}", self.name, seat.0);
        let started = self.world.start_thread(name, move || {
            let core = shared.take_core(seat).expect("[seat] a claimed seat's core is left where it is");
            worker::run_thread(shared, seat, core);
        });
        match started {
            Ok(()) => self.threads_started.fetch_add(1, Relaxed),
            Err(_) => self.threads_refused.fetch_add(1, Relaxed),
        };
        started.is_ok()
    }

    fn take_core(&self, seat: SeatId) -> Option<Core> {
        self.seat(seat).core.lock().expect("nothing that can panic runs under this lock").take()
    }

    /// The seat for callers, if there is one and no other caller sits there.
    pub(crate) fn take_callers_seat(&self) -> Option<(SeatId, Core)> {
        let seat = self.idle.claim_absent()?;
        Some((seat, self.take_core(seat).expect("[seat] an absent seat's core is left where it is")))
    }

    pub(crate) fn has_free_seat(&self) -> bool {
        self.idle.has_absent()
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
            self.seat(seat).parker.unpark();
        }
    }

    pub(crate) fn callers_drive(&self) -> bool {
        self.callers_drive
    }

    /// A thread leaves its seat. What is queued there is for the others, or for who sits there next.
    pub(crate) fn vacate(&self, seat: SeatId, core: Core) {
        *self.seat(seat).core.lock().expect("nothing that can panic runs under this lock") = Some(core);
        let for_callers = self.callers_drive && seat.0 == 0;
        if self.idle.leave(seat, for_callers) {
            self.tell_all_idle();
        }
        if self.has_queued() {
            self.announce();
        }
        if for_callers {
            // Those who wait without a seat: one of them sits down now.
            self.unpark_idle_watchers();
            for caller in self.callers.lock().expect("nothing that can panic runs under this lock").drain(..) {
                caller.wake();
            }
        }
    }

    /// A caller waits without a seat, and wants to know when it is free.
    pub(crate) fn wait_for_seat(&self, caller: Waker) {
        self.callers.lock().expect("nothing that can panic runs under this lock").push(caller);
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
        !self.global.is_empty() || self.seats.iter().any(|seat| !seat.deque.is_empty() || !seat.fifo.is_empty())
    }

    /// Whether anything is queued at all.
    pub(crate) fn has_work(&self) -> bool {
        self.has_queued() || self.seats.iter().any(|seat| !seat.bound.is_empty() || !seat.next.look().is_null())
    }

    /// The earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.seats.iter().map(|seat| seat.timers.next()).fold(self.outside.next(), u64::min)
    }

    /// Fires what is due in `timers`; says whether anything was.
    pub(crate) fn fire(&self, timers: &Timers<Action>) -> bool {
        // The clock is read only if there is a deadline.
        let next = timers.next();
        if next == NEVER {
            return false;
        }
        let now = self.world.now();
        let fired = next <= now && timers.run(now, &mut |action: Action| action.fire()).fired > 0;
        if fired {
            self.note_timer_room();
        }
        fired
    }

    /// A sleep found no timer left: it is woken when there may be one.
    pub(crate) fn wait_for_timer(&self, waker: Waker) {
        self.timer_waiters.lock().expect("nothing that can panic runs under this lock").push(waker);
        self.has_timer_waiters.store(true, SeqCst);
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
            drop(crate::body::guarded(|| waiter.wake()));
        }
    }

    /// A thread that is no worker set a timer for `when`: whoever keeps the time must know.
    pub(crate) fn outside_timer_set(&self, when: u64) {
        match self.keeper.timer_set(when) {
            Owed::Nothing => {}
            Owed::Nudge(seat) => self.seat(seat).parker.unpark(),
            Owed::Wake => self.announce(),
        }
    }

    /// Until when a worker is to park that found `earliest` to be the next deadline.
    pub(crate) fn keep_time(&self, seat: SeatId, earliest: u64) -> u64 {
        match self.keeper.keep(seat, earliest) {
            Kept::Until(deadline) => deadline,
            Kept::ByAnother => NEVER,
            Kept::ByNudged(keeper) => {
                self.seat(keeper).parker.unpark();
                NEVER
            }
        }
    }

    pub(crate) fn leave_keeping(&self, seat: SeatId) {
        self.keeper.leave(seat);
    }

    /// Whether the test clock may move when all is idle.
    pub(crate) fn may_advance(&self) -> bool {
        self.world.is_test() && self.idle_waits.load(Relaxed) == 0 && self.outstanding() == 0
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding.load(Acquire)
    }

    /// A completion is out.
    pub(crate) fn begin_outstanding(&self) {
        if self.world.is_test() {
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

    fn run_until_idle(self: &Arc<Self>) {
        self.idle_waits.fetch_add(1, Relaxed);
        let watcher = Arc::new(Parker::default());
        let watchers = || self.idle_watchers.lock().expect("nothing that can panic runs under this lock");
        watchers().push(Arc::clone(&watcher));
        // If somebody else drives, or threads do, this waits until they are idle, or until the seat is free.
        let is_idle = || self.idle.all_parked_and(|| !self.has_work() && self.outstanding() == 0);
        while !(worker::run_until_idle(self) || is_idle()) {
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
        self.seats.iter().map(|seat| count(&seat.stats).get()).sum::<u64>() + count(&self.outside_stats).get()
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

    pub(crate) fn count_spawned(&self) {
        worker::count(self, |stats| &stats.spawned, 1);
    }

    /// A process that was counted as spawned was refused: it counts as ended for who waits, and as neither for who looks.
    pub(crate) fn count_refused(&self) {
        worker::count(self, |stats| &stats.refused, 1);
        worker::count(self, |stats| &stats.ended, 1);
        self.note_end();
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("[type-stable] a scheduler is there while a slot of it is occupied")
    }

    /// A process has ended.
    #[inline]
    pub(crate) fn note_end(&self) {
        if self.closing.phase() != closing::OPEN {
            self.note_end_while_closing();
        }
    }

    /// The same again, by a worker that parks, after its `ParkFence`: `note_end` looks at the phase without a fence, which every end would pay
    /// for, and may so miss that a shutdown has just begun.
    pub(crate) fn note_end_at_leisure(&self) {
        if !matches!(self.closing.phase(), closing::OPEN | closing::ENDED) {
            self.note_end_while_closing();
        }
    }

    #[cold]
    fn note_end_while_closing(&self) {
        let phase = self.closing.phase_after_publishing();
        let alive = self.alive();
        if phase == closing::TERMINATING && alive == 0 {
            self.end();
        }
        // Only those who find what they wait for: one who looks in vain and waits again would be woken again, and so on.
        let mut waiters = self.end_waiters.lock().expect("nothing that can panic runs under this lock");
        let woken: Vec<_> = waiters.extract_if(.., |_, (left, _)| alive <= *left).collect();
        drop(waiters);
        for (_, (_, waiter)) in woken {
            drop(crate::body::guarded(|| waiter.wake()));
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.closing.phase() == closing::ENDED
    }

    /// No process is left, and none comes: the threads leave.
    fn end(&self) {
        self.closing.enter(closing::ENDED);
        for seat in &self.seats {
            seat.parker.unpark();
        }
        // What pending functions hold may hold this scheduler. A sleep of a root future is woken, and sets its timer anew.
        for timers in self.seats.iter().map(|seat| &seat.timers).chain([&self.outside]) {
            timers.clear(&mut |action: Action| action.give_up());
        }
    }

    /// Whether a new process is taken; `inside` if one of the scheduler's own processes spawns it.
    pub(crate) fn takes_processes(&self, inside: bool) -> bool {
        // After the count: either a shutdown sees that, or this sees the shutdown.
        match self.closing.phase_after_publishing() {
            closing::OPEN => true,
            closing::STOPPING => inside,
            _ => false,
        }
    }

    /// After a process was counted and made reachable: what is to become of it, if a shutdown began meanwhile. `inside` if one of the
    /// scheduler's own processes spawned it.
    pub(crate) fn after_publishing(&self, slot: &Slot, inside: bool) -> Newcomer {
        match self.closing.phase_after_publishing() {
            closing::OPEN => Newcomer::Runs,
            closing::STOPPING => {
                if !inside {
                    // It was taken before the shutdown began, which may have passed its slot. It is READY, and its maker queues it.
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
        self.callers_drive && self.closing.phase() == closing::TERMINATING
    }

    fn each_process(&self, mut each: impl FnMut(&Slot)) {
        for index in 0..self.table.made() {
            if let Some(pin) = self.table.pin_any(index) {
                each(&pin);
            }
        }
    }

    fn cancel_all(&self, except: Option<Pid>) {
        self.closing.enter(closing::STOPPING);
        self.each_process(|slot| {
            if Some(slot.pid()) != except {
                cancel(slot);
            }
        });
    }

    fn terminate_all(&self, except: Option<Pid>) {
        self.closing.enter(closing::TERMINATING);
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
    queue_if(slot, slot.state.wake());
}

pub(crate) fn cancel(slot: &Slot) {
    queue_if(slot, slot.state.cancel());
}

fn terminate(slot: &Slot) {
    queue_if(slot, slot.state.terminate());
}

#[inline]
fn queue_if(slot: &Slot, wake: Wake) {
    if wake == Wake::Enqueue {
        // SAFETY: the event made it READY.
        #[expect(unsafe_code, reason = "the right to queue a process is what the state protocol hands out")]
        worker::enqueue(unsafe { Ready::new(slot) }, Origin::Woken);
    }
}

/// Schedulers that may still be reached by PID.
static REACHABLE: Mutex<BTreeMap<u32, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// Pins the process of a PID, if it is on this node and has not ended.
pub(crate) fn find(pid: Pid) -> Option<Pin> {
    if pid.node() != 0 {
        return None;
    }
    let here = worker::here().filter(|shared| shared.id == pid.scheduler());
    let shared = here.or_else(|| {
        let reachable = REACHABLE.lock().expect("nothing that can panic runs under this lock");
        reachable.get(&pid.scheduler())?.upgrade().map(Hold::Shared)
    })?;
    shared.table.pin(pid.slot(), pid.generation()).filter(|slot| !slot.state.see().is_complete())
}

/// Why a scheduler could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A value is out of its range; the text names both.
    Invalid(String),
    /// Two handlers were given for one command.
    DuplicateCommand(CommandId),
    /// The system refused the first thread.
    Thread(io::Error),
    /// 2^32 schedulers have been made.
    Exhausted,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "cannot build a scheduler: {text}"),
            Self::DuplicateCommand(id) => write!(f, "cannot build a scheduler: two handlers for {id}"),
            Self::Thread(_) => f.write_str("cannot build a scheduler: the system refused its first thread"),
            Self::Exhausted => f.write_str("cannot build a scheduler: all 2^32 numbers are used up"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// What a [`Scheduler`] is to be like.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    name: String,
    width: Option<usize>,
    processes: u32,
    timers: u32,
    seed: Option<u64>,
    test_clock: bool,
    callers_drive: bool,
    shuffled: bool,
    handlers: Vec<(CommandId, Arc<dyn Handler>)>,
}

impl Builder {
    /// The name of the scheduler, and the beginning of its threads' names. Default: `procession`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers run at once, 1 to 1024. Default: the number of CPUs that this program may use, which honours affinity masks
    /// and cgroup quotas.
    pub fn width(mut self, workers: usize) -> Self {
        self.width = Some(workers);
        self
    }

    /// How many processes may live at once, 1 to 2^30. Each worker keeps a few free slots back for itself, at most a sixteenth of the limit
    /// and 64, so the limit may be felt that much earlier. Default: 2^24.
    pub fn processes(mut self, limit: u32) -> Self {
        self.processes = limit;
        self
    }

    /// How many timers may be pending at once on each worker, 1 to 2^30. Default: 2^24.
    pub fn timers(mut self, limit: u32) -> Self {
        self.timers = limit;
        self
    }

    /// The seed of every free choice that the scheduler makes. Default: drawn from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Replaces the clock by one that stands still while anything can run, and then jumps to the earliest deadline. The scheduler is then
    /// driven by its callers. With a width of 1 and a seed, two runs make the same dispatches. The seed is 0 unless one is given.
    pub fn test_clock(mut self) -> Self {
        self.test_clock = true;
        self.callers_drive = true;
        self
    }

    /// Lets the threads that call [`block_on`](Scheduler::block_on) and [`run_until_idle`](Scheduler::run_until_idle) be the first worker
    /// while they do. With a width of 1 the scheduler starts no thread: nothing runs between those calls. So a process that keeps the last
    /// [`Scheduler`] handle, and is driven by nobody any more, keeps the scheduler for ever.
    pub fn callers_drive(mut self) -> Self {
        self.callers_drive = true;
        self
    }

    /// Shakes out assumptions about order: a wake-up is refused the next slot at random, and what is taken from the global queue together is
    /// shuffled. For tests.
    pub fn shuffled(mut self) -> Self {
        self.shuffled = true;
        self
    }

    /// Registers what serves a command. The set is fixed once the scheduler is built.
    pub fn handler(mut self, command: CommandId, handler: impl Handler) -> Self {
        self.handlers.push((command, Arc::new(handler)));
        self
    }

    /// Builds the scheduler and, unless its callers drive it, starts its first thread. The others start when there is work for them; if the
    /// system refuses one then, the scheduler goes on with those it has, and counts it ([`Snapshot`]).
    ///
    /// # Errors
    /// [`BuildError`]: a value out of range, a command with two handlers, or a refused thread.
    pub fn build(self) -> Result<Scheduler, BuildError> {
        let in_range = |name: &str, value: u64, max: u64| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(BuildError::Invalid(format!("{name} is {value}, but must be from 1 to {max}")))
            }
        };
        let width = match self.width {
            Some(width) => width,
            None => std::thread::available_parallelism().map_or(1, usize::from).min(WIDTH_MAX),
        };
        in_range("width", width as u64, WIDTH_MAX as u64)?;
        in_range("processes", self.processes.into(), 1 << 30)?;
        in_range("timers", self.timers.into(), 1 << 30)?;
        if self.name.contains('\0') {
            return Err(BuildError::Invalid(format!("name is {:?}, but must not contain a NUL", self.name)));
        }
        let handlers = Registry::new(self.handlers)?;
        static LAST_ID: AtomicU32 = AtomicU32::new(0);
        let id = LAST_ID.fetch_update(Relaxed, Relaxed, |id| id.checked_add(1)).map_err(|_| BuildError::Exhausted)? + 1;
        let world = if self.test_clock { World::test(self.seed.unwrap_or(0)) } else { World::real(self.seed) };
        let seats = (0..width).map(|number| Seat::new(world.generator(number as u64), self.timers)).collect();
        let shared = Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            id,
            name: self.name,
            world,
            table: Table::new(self.processes, width as u32),
            global: Global::new(),
            idle: Idle::new(width as u32, self.callers_drive),
            seats,
            strides: (1..=width as u32).filter(|&stride| coprime(stride, width as u32)).collect(),
            outside: Timers::new(self.timers),
            outside_stats: Stats::default(),
            handlers,
            shuffled: self.shuffled,
            callers_drive: self.callers_drive,
            closing: Closing::open(),
            idle_waits: AtomicU32::new(0),
            idle_watchers: Mutex::new(Vec::new()),
            outstanding: AtomicU32::new(0),
            keeper: Keeper::none(),
            timer_waiters: Mutex::new(Vec::new()),
            has_timer_waiters: AtomicBool::new(false),
            callers: Mutex::new(Vec::new()),
            end_waiters: Mutex::default(),
            last_end_waiter: AtomicU64::new(0),
            threads_refused: AtomicU32::new(0),
            threads_started: AtomicU32::new(0),
            ages: Mutex::default(),
            foreign: Mutex::default(),
        });
        if !self.callers_drive {
            shared.start_first_thread().map_err(BuildError::Thread)?;
        }
        let mut reachable = REACHABLE.lock().expect("nothing that can panic runs under this lock");
        reachable.retain(|_, shared| shared.strong_count() > 0);
        reachable.insert(id, Arc::downgrade(&shared));
        drop(reachable);
        Ok(Scheduler(Arc::new(Owner(shared))))
    }
}

fn coprime(a: u32, b: u32) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

impl Seat {
    fn new(generator: fastrand::Rng, timers: u32) -> Self {
        let (core, deque, fifo) = Core::new(generator);
        Self {
            deque,
            fifo,
            next: Next::empty(),
            bound: Global::new(),
            timers: Timers::new(timers),
            step: AtomicU64::new(0),
            parker: Parker::default(),
            stats: Stats::default(),
            core: Mutex::new(Some(core)),
        }
    }
}

impl Shared {
    /// The first thread is started at once, so that a system that refuses threads says so when it can be handled.
    fn start_first_thread(self: &Arc<Self>) -> io::Result<()> {
        let seat = SeatId(0);
        if !self.idle.claim_this(seat) {
            return Ok(());
        }
        let shared = Arc::clone(self);
        self.threads_started.fetch_add(1, Relaxed);
        self.world.start_thread(format!("{}-0", self.name), move || {
            let core = shared.take_core(seat).expect("[seat] a claimed seat's core is left where it is");
            worker::run_thread(shared, seat, core);
        })
    }
}

/// A scheduler: a number of workers that run processes, isolated from all other schedulers.
///
/// This is a handle; clones are of the same scheduler. When the last one is dropped, the scheduler terminates its processes, each between
/// two of its steps, and ends with the last of them. The drop waits for nothing, so it may be done anywhere, also by one of the processes.
/// To let processes clean up, call [`shutdown`](Self::shutdown) first.
///
/// ```
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().name("example").width(2).build()?;
/// let sum = scheduler.block_on(async {
///     let one = procession::spawn(async { 1 });
///     let two = procession::spawn(async { 2 });
///     Ok::<_, procession::Exit>(one.await? + two.await?)
/// })?;
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Scheduler(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.terminate_all(None);
        if shared.callers_drive && !shared.has_ended() {
            // There may be no thread to end the processes. If one of them is the caller, the seat is taken, and its driver does it.
            worker::run_until_idle(shared);
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("Scheduler").field("id", &shared.id).field("name", &shared.name).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts to describe a scheduler.
    pub fn builder() -> Builder {
        Builder {
            name: String::from("procession"),
            width: None,
            processes: PROCESSES_DEFAULT,
            timers: TIMERS_DEFAULT,
            seed: None,
            test_clock: false,
            callers_drive: false,
            shuffled: false,
            handlers: Vec::new(),
        }
    }

    /// The default scheduler, made at its first use with the builder's defaults. If the system refuses its first thread, it is driven by its
    /// callers instead ([`Builder::callers_drive`]).
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Scheduler> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            let driven = |_| Self::builder().callers_drive().build();
            Self::builder()
                .build()
                .or_else(driven)
                .expect("the defaults are in range, and this is one of the first schedulers")
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// The number of the scheduler, the first in the PIDs of its processes.
    pub fn id(&self) -> u32 {
        self.shared().id
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        self.shared().name()
    }

    /// Starts a process that runs `future`. See [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        SpawnOptions::new().on(self).spawn(future)
    }

    /// Starts a process with a mailbox. See [`start`](crate::start()).
    #[track_caller]
    pub fn start<M, F, P>(&self, process: F) -> Child<M, P::Output>
    where
        M: Send + 'static,
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
    {
        SpawnOptions::new().on(self).start(process)
    }

    /// Starts a state machine. See [`spawn_process`](crate::spawn_process).
    ///
    /// # Errors
    /// [`SpawnError`], with the process in it.
    #[track_caller]
    pub fn spawn_process<P: Process>(
        &self,
        process: P,
        method: &str,
        input: crate::Value,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        SpawnOptions::new().on(self).spawn_process(process, method, input)
    }

    /// Runs `future` on this thread until it is complete, and returns its output. It is no process: it has no PID and need not be `Send`.
    /// What it spawns goes to this scheduler.
    ///
    /// # Blocking
    /// The thread is parked while the future waits. In a process this blocks the worker, so await instead.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        worker::block_on(self.shared(), future)
    }

    /// Waits until no process can run, and says who waits for what. If the scheduler is driven by its callers, this thread runs the
    /// processes. The test clock does not move meanwhile.
    ///
    /// # Blocking
    /// Blocks the thread. It does not return while a process runs on and on; in a process it never returns, since that one runs.
    pub fn run_until_idle(&self) -> Vec<WaitingProcess> {
        self.shared().run_until_idle();
        snapshot::waiting(self.shared())
    }

    /// Moves the test clock by `duration`, and fires what is due then, once processes run. Without a test clock this does nothing.
    pub fn advance(&self, duration: Duration) {
        let shared = self.shared();
        shared.world.advance_to(shared.world.now().saturating_add(nanoseconds(duration)));
        shared.announce();
    }

    /// What this scheduler's clock shows.
    pub fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.shared().world.now())
    }

    /// The seed of the scheduler's choices, given or drawn.
    pub fn seed(&self) -> u64 {
        self.shared().world.seed()
    }

    /// Asks a process to end: cancelling is cooperative. Says whether the process was there.
    ///
    /// Its [`receive`](Context::receive) ends once the mailbox is empty, [`cancelled`](Context::cancelled) resolves, and a state machine
    /// gets [`Event::Cancel`](crate::Event).
    pub fn cancel(&self, pid: Pid) -> bool {
        find(pid).map(|slot| cancel(&slot)).is_some()
    }

    /// Ends a process between two of its steps, with [`Exit::Killed`](crate::Exit::Killed). Says whether the process was there. A step that never returns cannot be
    /// ended.
    pub fn terminate(&self, pid: Pid) -> bool {
        find(pid).map(|slot| terminate(&slot)).is_some()
    }

    /// What all workers and processes are doing.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(self.shared())
    }

    /// Ends the scheduler in order: asks every process to end, but the caller if it is one; lets them clean up, which may take any number of steps,
    /// messages, timers and new processes of theirs; terminates the rest shortly before `deadline` has passed (a tenth of it, at most
    /// 100 ms); and returns at the latest when it has passed, with those who have not ended even so. From the first moment nobody else
    /// can spawn.
    ///
    /// A process that was terminated and whose `Drop` has not returned has not ended. Awaited by a plain thread, in
    /// [`block_on`](Self::block_on), this returns by its deadline whatever the processes do, unless that thread is itself a worker
    /// ([`Builder::callers_drive`]) and runs a step that never returns.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<UnfinishedProcess> {
        let shared = self.shared();
        let caller = worker::current().map(|slot| slot.pid()).filter(|pid| pid.scheduler() == shared.id);
        let left = u64::from(caller.is_some());
        let now = shared.world.now();
        let deadline = nanoseconds(deadline);
        let kept_back = (deadline / 10).min(TERMINATION_MAX);
        shared.cancel_all(caller);
        shared.wait_for_ends(left, now.saturating_add(deadline - kept_back)).await;
        shared.terminate_all(caller);
        shared.wait_for_ends(left, now.saturating_add(deadline)).await;
        if shared.alive() <= left { Vec::new() } else { snapshot::unfinished(shared, caller) }
    }
}

impl Shared {
    /// Waits until no more than `left` processes are alive, or until `deadline`.
    async fn wait_for_ends(self: &Arc<Self>, left: u64, deadline: u64) {
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
        drop(self.change(|waiters| waiters.insert(self.number, (left, new))));
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        drop(self.change(|waiters| waiters.remove(&self.number)));
    }
}

/// The scheduler that new processes of this thread belong to.
#[inline]
pub(crate) fn here() -> Hold {
    worker::here().unwrap_or_else(|| Hold::Shared(Arc::clone(Scheduler::global().shared())))
}

/// Where something was called.
#[track_caller]
pub(crate) fn caller() -> &'static Location<'static> {
    Location::caller()
}
