//! What all pools have in common: jobs of one type, workers, and those who wait.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use super::builder::{Hooks, OnFull, check_capacity, keep_alive_nanoseconds};
use super::error::Why;
use super::state::busy::Busy;
use super::state::core::Core;
use super::state::idle::Idle;
use super::state::outcome::{Calm, Ended, Entry, Expired, Next, Refused, Verdict};
use super::state::picture::Limits;
use super::state::seat::{Order, Seat};
use super::state::synced::Start;
use super::state::wakes::{Launch, Wakes};
use super::{PoolError, PoolStats, SubmitError, WaitError};
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::current::{self, Hold};
use crate::scheduler::seat_id::NEVER;
use crate::scheduler::shared::Shared;
use crate::spawn::options::Reservation;
use crate::sync::wait_list::{Another, Place};
use crate::sys::{Parker, World, nanoseconds};
use crate::time::action::Action;
use crate::time::armed::Armed;
use crate::time::{arm, sleep_on};
use crate::util::small_vec::Few;
use crate::{SpawnOptions, Waiting};

/// Jobs that run inside of others that wait for them: each needs room on the same stack.
const HELP_DEPTH_MAX: usize = 32;

/// The clock and the threads of pools that belong to no scheduler.
pub(super) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::real(None))
}

/// Wakes a thread.
#[derive(Default)]
pub(super) struct Signal(Parker);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

impl Signal {
    pub(super) fn park_until(&self, deadline: u64) {
        world().park(&self.0, deadline);
    }
}

/// When a wait is over that begins now.
pub(super) fn deadline_after(patience: Option<Duration>) -> u64 {
    patience.map_or(NEVER, |patience| world().now().saturating_add(nanoseconds(patience)))
}

/// Polls on this thread until there is a result, or the time is over.
pub(super) fn block<T>(patience: Option<Duration>, mut poll: impl FnMut(&mut TaskContext<'_>) -> Poll<T>) -> Option<T> {
    let deadline = deadline_after(patience);
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut task = TaskContext::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = poll(&mut task) {
            return Some(result);
        }
        if deadline != NEVER && world().now() >= deadline {
            // Once more: the result may have come since.
            return match poll(&mut task) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            };
        }
        signal.park_until(deadline);
    }
}

/// The worker whose job runs on this thread.
#[derive(Clone, Copy)]
struct Current {
    pool: u64,
    worker: Busy,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
    static HELP_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The thread works for a pool until this goes.
#[must_use = "dropped, it ends"]
pub(super) struct Marked(Option<Current>);

impl Drop for Marked {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// How workers are started.
pub(super) trait Engine<J>: Send + Sync {
    /// Starts a worker, which takes its order from its seat.
    fn start(&self, inner: &Arc<Inner<J>>, seat: &Arc<Seat<J>>) -> io::Result<()>;

    /// Starts a worker that rests with a job, as the process for which there is a reservation.
    fn launch(&self, _: &Arc<Inner<J>>, _: Launch<J>, _: Reservation<'_>) {
        unreachable!("only workers that rest are started so")
    }

    /// Runs a job on the calling thread; only engines whose jobs can be run so have any called.
    fn run(&self, inner: &Inner<J>, job: J) -> Ended;

    /// The scheduler of the workers, if they are processes.
    fn scheduler(&self) -> Option<&Arc<Shared>>;

    /// Whether idle workers rest: they have no process then.
    fn rests(&self) -> bool {
        false
    }

    /// Has the hooks of so many workers run that leave out of their rest, and the workers counted as gone.
    fn dismiss(&self, _: &Arc<Inner<J>>, _: usize) {
        unreachable!("only those leave so that have rested")
    }

    /// Has the pool [retry](Inner::retry) after a while.
    fn retry(&self, _: &Arc<Inner<J>>) {
        unreachable!("only jobs of workers that rest wait so")
    }
}

/// The processes that a step may start: most often one.
#[derive(Default)]
struct Reservations<'a> {
    granted: Few<Reservation<'a>>,
    /// For which there is no room. Kept, to be dropped outside the lock.
    refused: Few<Reservation<'a>>,
}

impl<'a> Reservations<'a> {
    fn add(&mut self, held: &'a Hold) -> io::Result<()> {
        let reservation = Reservation::of(held);
        if let Some(refusal) = reservation.refusal() {
            self.refused.push(reservation);
            return Err(io::Error::other(refusal.to_string()));
        }
        self.granted.push(reservation);
        Ok(())
    }
}

/// What handles and watchers need to know of a pool, whatever its jobs are.
pub(super) trait Jobs: Send + Sync {
    fn cancel(&self, ticket: u64) -> bool;
    /// Runs a queued job, if the caller is a worker of the pool.
    fn help(&self, ticket: u64);
    fn begin_join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool;
    fn scheduler(&self) -> Option<Arc<Shared>>;
}

pub(super) struct Inner<J> {
    me: Weak<Self>,
    id: u64,
    core: Core<J>,
    engine: Box<dyn Engine<J>>,
    pub(super) name: String,
    /// Nanoseconds that a worker stays idle.
    keep_alive: AtomicU64,
    pub(super) hooks: Hooks,
    last_watch: AtomicU64,
    last_worker: AtomicU64,
    /// The timer that reaps those that rest, and when.
    reaper: Mutex<Option<(u64, Armed)>>,
}

impl<J> fmt::Debug for Inner<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// For how long a submitter waits for a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Refuse,
    For(Option<Duration>),
    RunHere,
}

impl From<OnFull> for Patience {
    fn from(on_full: OnFull) -> Self {
        match on_full {
            OnFull::Wait => Self::For(None),
            OnFull::Refuse => Self::Refuse,
            OnFull::CallerRuns => Self::RunHere,
        }
    }
}

fn why(refused: Refused) -> Why {
    match refused {
        Refused::Full => Why::Full,
        Refused::Closed => Why::Closed,
        Refused::Worker(error) => Why::Worker(error),
    }
}

fn refused<C>((content, refused): (C, Refused)) -> SubmitError<C> {
    SubmitError { content, kind: why(refused) }
}

impl<J> Inner<J> {
    pub(super) fn new(
        name: String,
        limits: Limits,
        keep_alive: u64,
        hooks: Hooks,
        engine: Box<dyn Engine<J>>,
    ) -> Arc<Self> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            // Relaxed: only that they differ.
            id: LAST_ID.fetch_add(1, Relaxed),
            core: Core::new(limits),
            engine,
            name,
            keep_alive: AtomicU64::new(keep_alive),
            hooks,
            last_watch: AtomicU64::new(0),
            last_worker: AtomicU64::new(0),
            reaper: Mutex::new(None),
        })
    }

    pub(super) fn next_worker_name(&self) -> String {
        format!("{}-{}", self.name, self.last_worker.fetch_add(1, Relaxed))
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats::of(&self.core.picture())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.core.picture().closed
    }

    /// A step that may start workers, and what it leaves to be done outside the lock.
    fn step<R>(self: &Arc<Self>, step: impl FnOnce(&Core<J>, Start<'_, J>) -> (R, Wakes<J>)) -> R {
        let Some(shared) = self.engine.scheduler().filter(|_| self.engine.rests()) else {
            return self.woken(step(&self.core, &mut || self.start()));
        };
        let held = current::hold(shared);
        // Who waited for the reserved processes to end would wait while the clock moved on.
        let stopped = shared.stop_clock();
        let mut reservations = Reservations::default();
        let (result, mut wakes) = step(&self.core, &mut || reservations.add(&held).map(|()| Idle::new_resting()));
        for (launch, reservation) in wakes.launches.drain().zip(reservations.granted.drain()) {
            self.engine.launch(self, launch, reservation);
        }
        // Before user code is called, which may wait, or leave this thread.
        drop(reservations);
        drop(stopped);
        drop(held);
        self.woken((result, wakes))
    }

    /// Starts a worker that parks.
    fn start(self: &Arc<Self>) -> io::Result<Idle<J>> {
        let seat = Seat::new();
        self.engine.start(self, &seat)?;
        Ok(Idle::Parked(seat))
    }

    fn woken<R>(&self, (result, wakes): (R, Wakes<J>)) -> R {
        let (leavers, starved) = (wakes.leavers, wakes.starved);
        wakes.wake();
        if leavers > 0 {
            self.engine.dismiss(&self.arc(), leavers);
        }
        if starved {
            self.engine.retry(&self.arc());
        }
        result
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls a method has the pool")
    }

    pub(super) fn close(&self) -> bool {
        // Before the close: afterwards it may be that of a pool that was opened again.
        self.stop_reaper();
        self.woken(self.core.close())
    }

    pub(super) fn shutdown_now(&self) -> usize {
        let jobs = self.woken(self.core.clear());
        let count = jobs.len();
        // One by one: a panic of one must not keep the others from being resolved.
        jobs.into_iter().for_each(drop_guarded);
        count
    }

    pub(super) fn reopen(&self) -> Result<(), PoolError> {
        if self.core.reopen() { Ok(()) } else { Err(PoolError::NotDrained) }
    }

    pub(super) fn release(&self, generation: u64) {
        self.woken(((), self.core.release(generation)));
    }

    pub(super) fn try_reserve(&self) -> Result<u64, Why> {
        self.core.try_reserve().map_err(|kind| {
            self.core.count_refused();
            why(kind)
        })
    }

    pub(super) fn finish(&self, idle: impl FnOnce() -> Idle<J>, ticket: u64, ended: Ended) -> Next<J> {
        self.woken(self.core.finish(idle, ticket, ended))
    }

    pub(super) fn expire(&self, seat: &Arc<Seat<J>>) -> Expired {
        self.woken(self.core.expire(seat))
    }

    pub(super) fn left(&self) {
        self.woken(((), self.core.left()));
    }

    /// A worker is gone that has not left: its process was killed.
    pub(super) fn died(self: &Arc<Self>, seat: Option<&Arc<Seat<J>>>, ticket: Option<u64>) {
        let lost = self.step(|core, start| core.died(seat, ticket, start));
        lost.into_iter().for_each(drop_guarded);
    }

    fn stop_reaper(&self) {
        self.delete(self.change_reaper(Option::take));
    }

    fn delete(&self, reaper: Option<(u64, Armed)>) {
        if let (Some((_, armed)), Some(shared)) = (reaper, self.engine.scheduler()) {
            drop(armed.delete(shared));
        }
    }

    fn change_reaper<R>(&self, change: impl FnOnce(&mut Option<(u64, Armed)>) -> R) -> R {
        change(&mut self.reaper.lock().expect("nothing that can panic runs under this lock"))
    }

    pub(super) fn resize(self: &Arc<Self>, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        Ok(self.step(|core, start| core.resize(capacity, start)))
    }

    pub(super) fn set_keep_alive(&self, idle: Duration) {
        self.keep_alive.store(keep_alive_nanoseconds(idle), Relaxed);
        self.core.expect_uneven();
    }

    pub(super) fn enter<C>(self: &Arc<Self>, content: C, make: impl FnOnce(C) -> J) -> Result<u64, SubmitError<C>> {
        self.step(|core, start| core.enter(content, make, start)).map_err(refused)
    }

    /// With a place that was reserved.
    pub(super) fn enter_reserved<C>(
        self: &Arc<Self>,
        generation: u64,
        content: C,
        make: impl FnOnce(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        self.step(|core, start| core.enter_reserved(generation, content, make, start)).map_err(refused)
    }
}

impl<J: Send + 'static> Inner<J> {
    pub(super) fn prestart(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        let until = self.rest_until();
        let reap_at = self.core.prestart(wanted, until, &mut || self.start())?;
        self.reap_at(reap_at);
        Ok(())
    }

    /// When a worker leaves that rests from now on.
    pub(super) fn rest_until(&self) -> u64 {
        // Threads and coroutines look at the clock when they park.
        let Some(shared) = self.engine.scheduler().filter(|_| self.engine.rests()) else {
            return NEVER;
        };
        // Relaxed: a change counts from about now on.
        match self.keep_alive.load(Relaxed) {
            NEVER => NEVER,
            idle => shared.world.now().saturating_add(idle),
        }
    }

    /// Has those reaped who rest too long, at that time.
    pub(super) fn reap_at(&self, when: Option<u64>) {
        let (Some(when), Some(shared)) = (when, self.engine.scheduler()) else {
            return;
        };
        let me = Weak::clone(&self.me);
        let reap = move || {
            if let Some(inner) = me.upgrade() {
                inner.reap();
            }
        };
        let now = shared.world.now();
        let replaced = self.change_reaper(|reaper| {
            if reaper.is_some_and(|(before, _)| now < before && before <= when) {
                // Another has agreed on less meanwhile, and was faster.
                return Some(None);
            }
            let armed = arm(shared, when, None, Action::Call(Arc::new(reap))).ok()?;
            Some(reaper.replace((when, armed)))
        });
        match replaced {
            // Outside the lock: who waits for a timer is woken.
            Some(before) => self.delete(before),
            None => self.reap_later(shared, when),
        }
    }

    /// As `reap_at`, without a timer, of which there are none left at present: a process waits for one.
    #[cold]
    fn reap_later(&self, shared: &Arc<Shared>, when: u64) {
        let me = Weak::clone(&self.me);
        let sleep = sleep_on(Arc::clone(shared), when);
        let reaper = SpawnOptions::new().on_shared(Arc::clone(shared)).try_spawn(async move {
            sleep.await;
            if let Some(inner) = me.upgrade() {
                inner.reap();
            }
        });
        if reaper.is_err() {
            // The next that rests tries again.
            self.core.forget_reaper();
        }
    }

    pub(super) fn forget_retry(&self) {
        self.core.forget_retry();
    }

    /// Starts workers for jobs that are queued because none could be started.
    pub(super) fn retry(self: &Arc<Self>) {
        self.step(|core, start| ((), core.retry(start)));
    }

    fn reap(&self) {
        if let Some(shared) = self.engine.scheduler() {
            let next = self.woken(self.core.reap(shared.world.now()));
            self.reap_at(next);
        }
    }

    /// Marks the thread as that of a worker.
    pub(super) fn mark(&self, worker: Busy) -> Marked {
        Marked(CURRENT.replace(Some(Current { pool: self.id, worker })))
    }

    /// The worker of this pool whose job runs on this thread.
    fn own_worker(&self) -> Option<Busy> {
        CURRENT.get().filter(|current| current.pool == self.id).map(|current| current.worker)
    }

    /// Whether a job of this pool runs on this thread.
    pub(super) fn is_inside(&self) -> bool {
        self.own_worker().is_some()
    }

    pub(super) fn place(self: &Arc<Self>, timed: bool) -> PlaceWait<'_, J> {
        PlaceWait { inner: self, place: None, timed }
    }

    /// Puts a job into the pool, or waits, or runs it here.
    pub(super) fn put<C>(
        self: &Arc<Self>,
        content: C,
        patience: Patience,
        mut make: impl FnMut(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        let entered = match self.enter(content, &mut make) {
            Err(SubmitError { content, kind: Why::Full }) => match patience {
                Patience::Refuse => Err(SubmitError { content, kind: Why::Full }),
                Patience::For(patience) => {
                    let mut place = self.place(patience.is_some());
                    match block(patience, |task| place.poll_place(task)).unwrap_or(Err(Why::TimedOut)) {
                        Ok(generation) => self.enter_reserved(generation, content, make),
                        Err(kind) => Err(SubmitError { content, kind }),
                    }
                }
                Patience::RunHere => match self.core.begin_inline() {
                    Some(ticket) => {
                        let job = make(content);
                        self.run_inline(ticket, job);
                        Ok(ticket)
                    }
                    None => Err(SubmitError { content, kind: Why::Closed }),
                },
            },
            entered => entered,
        };
        self.count_if_refused(&entered);
        entered
    }

    /// Counts a refusal that the protocol has not counted.
    pub(super) fn count_if_refused<C>(&self, entered: &Result<u64, SubmitError<C>>) {
        if entered.as_ref().is_err_and(|error| !error.is_no_worker()) {
            self.core.count_refused();
        }
    }

    fn run_inline(&self, ticket: u64, job: J) {
        let ended = self.engine.run(self, job);
        self.woken(((), self.core.finish_inline(ticket, ended)));
    }

    fn watch(&self, calm: Calm) -> Watch<'_, J> {
        Watch { inner: self, calm, number: self.last_watch.fetch_add(1, Relaxed) }
    }

    pub(super) fn wait(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        if !self.is_closed() {
            return Err(WaitError::Open);
        }
        self.wait_for(Calm::Drained, patience)
    }

    pub(super) fn wait_idle(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(Calm::Idle, patience)
    }

    fn wait_for(&self, calm: Calm, patience: Option<Duration>) -> Result<(), WaitError> {
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let watch = self.watch(calm);
        block(patience, |task| watch.poll_calm(task)).ok_or(WaitError::TimedOut)
    }

    pub(super) async fn drained(&self) -> Result<(), WaitError> {
        if !self.is_closed() {
            return Err(WaitError::Open);
        }
        self.until(Calm::Drained).await
    }

    pub(super) async fn idle(&self) -> Result<(), WaitError> {
        self.until(Calm::Idle).await
    }

    async fn until(&self, calm: Calm) -> Result<(), WaitError> {
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let watch = self.watch(calm);
        std::future::poll_fn(|task| watch.poll_calm(task)).await;
        Ok(())
    }

    /// When a worker that becomes idle on this thread leaves.
    pub(super) fn keep_alive(&self) -> u64 {
        self.keep_alive.load(Relaxed)
    }

    /// What a thread does that works for the pool.
    pub(super) fn work(self: Arc<Self>, seat: Arc<Seat<J>>) {
        let marked = self.mark(Busy::in_seat(&seat));
        self.hooks.run_start();
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(Arc::clone(&signal));
        let mut order = self.await_order(&seat, &signal, &waker);
        while let Order::Run(ticket, job) = order {
            let ended = self.engine.run(&self, job);
            order = match self.finish(|| Idle::Parked(Arc::clone(&seat)), ticket, ended) {
                Next::Run(ticket, job) => Order::Run(ticket, job),
                Next::Park => self.await_order(&seat, &signal, &waker),
                Next::Leave => Order::Leave,
                Next::Rest(_) => unreachable!("a thread parks"),
            };
        }
        self.hooks.run_stop();
        drop(marked);
        self.left();
    }

    fn await_order(&self, seat: &Arc<Seat<J>>, signal: &Signal, waker: &Waker) -> Order<J> {
        let mut deadline = None;
        loop {
            if let Some(order) = seat.take_order(waker) {
                return order;
            }
            // Read only by those that have to wait.
            let until = *deadline.get_or_insert_with(|| world().now().saturating_add(self.keep_alive()));
            if until != NEVER && world().now() >= until {
                match self.expire(seat) {
                    Expired::Leave => return Order::Leave,
                    Expired::Kept => deadline = Some(NEVER),
                    Expired::Claimed => {}
                }
            }
            signal.park_until(deadline.unwrap_or(until));
        }
    }
}

impl<J: Send + 'static> Jobs for Inner<J> {
    fn cancel(&self, ticket: u64) -> bool {
        let job = self.woken(self.core.withdraw(ticket));
        let cancelled = job.is_some();
        drop_guarded(job);
        cancelled
    }

    fn help(&self, ticket: u64) {
        let depth = HELP_DEPTH.get();
        if depth >= HELP_DEPTH_MAX || !self.is_inside() {
            return;
        }
        if let Some(job) = self.woken(self.core.take_inline(ticket)) {
            HELP_DEPTH.set(depth + 1);
            self.run_inline(ticket, job);
            HELP_DEPTH.set(depth);
        }
    }

    fn begin_join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        self.own_worker().is_none_or(|busy| self.core.join(busy, ticket, has_ended))
    }

    fn scheduler(&self) -> Option<Arc<Shared>> {
        self.engine.scheduler().cloned()
    }
}

/// Waits for a place in a pool, which is reserved then. Dropped, it gives back what it was given.
pub(super) struct PlaceWait<'a, J: Send + 'static> {
    inner: &'a Arc<Inner<J>>,
    place: Option<Place>,
    /// Whether the caller goes on some day without a place.
    timed: bool,
}

impl<J: Send + 'static> PlaceWait<'_, J> {
    pub(super) fn poll_place(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<u64, Why>> {
        let mut another = Another::of(task.waker());
        another.prepare();
        if self.place.is_some() {
            return match self.inner.core.poll_wait(&mut self.place, &mut another) {
                Some(Verdict::Granted(generation)) => Poll::Ready(Ok(generation)),
                Some(Verdict::Closed) => Poll::Ready(Err(Why::Closed)),
                None => Poll::Pending,
            };
        }
        match self.inner.core.wait(&mut another, self.own_worker()) {
            Entry::Granted(generation) => Poll::Ready(Ok(generation)),
            entry => self.note(entry).map(Err),
        }
    }

    /// The worker whose job waits, if it waits without a limit of time.
    fn own_worker(&self) -> Option<Busy> {
        if self.timed { None } else { self.inner.own_worker() }
    }

    /// Keeps the place of somebody who waits, or says why he does not.
    fn note(&mut self, entry: Entry) -> Poll<Why> {
        Poll::Ready(match entry {
            Entry::Waits(place) => {
                self.place = Some(place);
                return Poll::Pending;
            }
            Entry::Closed => Why::Closed,
            Entry::TooManyWaiting => Why::TooManyWaiting,
            Entry::WouldDeadlock => Why::WouldDeadlock,
            Entry::Granted(_) | Entry::Taken(_) => unreachable!("whoever asked for it has taken it"),
        })
    }

    /// Puts a job into the pool as soon as there is a place; its ticket. The content is taken if the job is.
    pub(super) fn poll_enter<C>(
        &mut self,
        task: &mut TaskContext<'_>,
        content: &mut Option<C>,
        make: &mut impl FnMut(C) -> J,
    ) -> Poll<Result<u64, Why>> {
        let inner = self.inner;
        let mut another = Another::of(task.waker());
        another.prepare();
        let polled = if self.place.is_some() {
            let place = &mut self.place;
            match inner.step(|core, start| core.enter_served(place, content, make, start, &mut another)) {
                Some(entered) => Poll::Ready(entered.map_err(why)),
                None => Poll::Pending,
            }
        } else {
            let own = self.own_worker();
            match inner.step(|core, start| core.enter_or_wait(content, make, start, &mut another, own)) {
                Ok(Entry::Taken(ticket)) => Poll::Ready(Ok(ticket)),
                Ok(entry) => self.note(entry).map(Err),
                Err(refused) => Poll::Ready(Err(why(refused))),
            }
        };
        if polled.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        polled
    }

    pub(super) fn is_enlisted(&self) -> bool {
        self.place.is_some()
    }
}

impl<J: Send + 'static> Future for PlaceWait<'_, J> {
    type Output = Result<u64, Why>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let polled = self.get_mut().poll_place(task);
        if polled.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        polled
    }
}

impl<J: Send + 'static> Drop for PlaceWait<'_, J> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.inner.woken(((), self.inner.core.leave_wait(place)));
        }
    }
}

/// Somebody who waits for a calm; forgotten when he goes.
struct Watch<'a, J: Send + 'static> {
    inner: &'a Inner<J>,
    calm: Calm,
    number: u64,
}

impl<J: Send + 'static> Watch<'_, J> {
    fn poll_calm(&self, task: &mut TaskContext<'_>) -> Poll<()> {
        let (is_calm, waker) = self.inner.core.watch(self.number, self.calm, task.waker().clone());
        drop(waker);
        if is_calm {
            return Poll::Ready(());
        }
        current::note_waiting(Waiting::JOB);
        Poll::Pending
    }
}

impl<J: Send + 'static> Drop for Watch<'_, J> {
    fn drop(&mut self) {
        drop(self.inner.core.unwatch(self.number));
    }
}

/// What the handles of a pool share: with the last of them the pool is closed.
pub(super) struct Owner<J>(pub(super) Arc<Inner<J>>);

impl<J> Drop for Owner<J> {
    fn drop(&mut self) {
        drop(guarded(|| self.0.close()));
    }
}
