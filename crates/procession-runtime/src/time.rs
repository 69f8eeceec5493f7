//! Time for processes: sleeps, timeouts, intervals.

pub(crate) mod action;
pub(crate) mod arm;
mod elapsed;
mod instant;
mod last_try;
mod limit;
mod running;

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::num::NonZeroU64;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, SystemTime};

use procession_protocols::sync::wait_list::Place;

use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::process::waker;
use crate::scheduler::current;
use crate::scheduler::current::Hold;
use crate::scheduler::placed::placed;
use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::time::action::{Action, Armed};
use crate::time::arm::{arm, arm_function};

pub use self::elapsed::Elapsed;
pub use self::instant::Instant;
use self::last_try::LastTry;
#[cfg(feature = "io")]
pub(crate) use self::last_try::is_last_try;
#[cfg(feature = "hyper")]
pub(crate) use self::last_try::poll_last;
pub use self::limit::TimerLimit;
use self::running::{FunctionEnd, TimerFunction};

/// Returns the time of the day, as the scheduler of this thread knows it.
///
/// On the test clock, and in a simulation, it is the reading of that clock, counted from the
/// beginning of 1970, because a run with the same seed must see the same time. The system may set
/// its clock back, so use [`Instant`] to measure time.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     procession::sleep(Duration::from_secs(3600)).await;
///     let now = procession::time::system_time();
///     assert_eq!(now, SystemTime::UNIX_EPOCH + Duration::from_secs(3600));
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub fn system_time() -> SystemTime {
    crate::scheduler::owner::here().world.system_time()
}

/// Waits for `duration`, counted from this call.
///
/// On a thread that belongs to no scheduler, the time counts from the first poll, on the clock of
/// the scheduler that polls.
///
/// The wait is never shorter than `duration`. It is longer while the scheduler is busy. It is also
/// up to 200 us longer if timers of the scheduler fire every 20 us or more often, because one
/// wake-up then fires several of these timers.
///
/// ```
/// use std::time::Duration;
///
/// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
/// let slept = scheduler.block_on(async {
///     let before = procession::time::Instant::now();
///     procession::sleep(Duration::from_secs(3600)).await;
///     procession::time::Instant::now() - before
/// });
/// assert_eq!(slept, Duration::from_secs(3600)); // On the test clock, at once.
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    match current::here() {
        Some(here) => {
            let deadline = Instant(here.world.now()) + duration;
            Sleep::new(deadline.0, if duration.is_zero() { Since::Zero } else { Since::ZeroFresh })
        }
        None => Sleep::new(nanoseconds(duration), Since::FirstPoll),
    }
}

/// Waits until `deadline`. Completes at the first poll if that moment has passed.
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::new(deadline.0, Since::Zero)
}

/// Waits until a moment on the clock of `shared`.
#[track_caller]
pub(crate) fn sleep_on(shared: Arc<Shared>, deadline: u64) -> Sleep {
    let mut sleep = Sleep::new(deadline, Since::Zero);
    (sleep.whose, sleep.on) = (Some(Whose::Scheduler(shared)), true);
    sleep
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// The first poll that has to wait sets a timer. Dropping the future removes the timer. If the
/// scheduler has reached its limit of timers, the future waits until a timer is free, even beyond
/// its deadline.
///
/// The timer belongs to the scheduler of that poll and follows its clock, even if another scheduler
/// polls afterwards. The deadline is a moment on the clock of the scheduler that calls [`sleep`].
/// So if one of two schedulers has a test clock, the first poll must be on the scheduler of the
/// call. For example, `scheduler.spawn(async move { sleep(time).await })` calls and polls on
/// `scheduler`, and `scheduler.spawn(sleep(time))` may not.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    /// In nanoseconds: a moment, or a duration with `Since::FirstPoll`.
    deadline: u64,
    since: Since,
    /// The time was over in a step that had spent its budget. See [`poll_within`].
    is_late: bool,
    /// The constructor set the scheduler, which stays: its clock counts, whichever scheduler polls.
    on: bool,
    /// The place of the call.
    place: &'static Location<'static>,
    /// Present if a timer is set or awaited.
    whose: Option<Whose>,
    timer: SleepTimer,
}

// Each sleeping process has one.
const _: () = assert!(size_of::<Sleep>() <= 72);

/// The timer of a sleep.
enum SleepTimer {
    None,
    Set(ArmedSleep),
    /// The scheduler has reached its limit of timers. The place is in its list of the sleeps that
    /// wait for room.
    Awaited(Place),
}

/// The origin of a sleep's deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// The zero of the clock: the deadline is a moment.
    Zero,
    /// As `Zero`, in a sleep that was not over when it was made and has not been polled. The first
    /// poll need not read the clock (122 instead of 150 ns to set and cancel): if the time is over
    /// by then, the timer fires immediately.
    ZeroFresh,
    FirstPoll,
}

/// The scheduler of a timer.
enum Whose {
    /// The scheduler of the process that polled, by number. This takes no reference count; the
    /// timer is gone when the scheduler is. A thread of another scheduler looks the number up under
    /// a lock.
    Process(u32),
    Scheduler(Arc<Shared>),
}

impl Whose {
    /// Returns the scheduler of this thread.
    fn here() -> Self {
        match current::scheduler_of_process() {
            Some(id) => Self::Process(id),
            None => Self::Scheduler(Arc::clone(&crate::scheduler::owner::here())),
        }
    }

    #[inline]
    fn hold(&self) -> Option<Hold> {
        match self {
            Self::Process(id) => crate::scheduler::reach::reach(*id),
            Self::Scheduler(shared) => Some(Hold::Shared(Arc::clone(shared))),
        }
    }
}

impl Sleep {
    #[track_caller]
    fn new(deadline: u64, since: Since) -> Self {
        let place = Location::caller();
        let timer = SleepTimer::None;
        Self { deadline, since, is_late: false, on: false, place, whose: None, timer }
    }

    /// Returns the deadline. If the time counts from the first poll, returns the deadline of a
    /// first poll now.
    pub fn deadline(&self) -> Instant {
        match self.since {
            Since::FirstPoll => Instant::now() + Duration::from_nanos(self.deadline),
            Since::Zero | Since::ZeroFresh => Instant(self.deadline),
        }
    }

    /// Returns `true` if the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        self.deadline() <= Instant::now()
    }

    /// Sets another deadline. If the new deadline is later, this costs one store.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let sleep = self.get_mut();
        (sleep.deadline, sleep.since) = (deadline.0, Since::Zero);
        if let Some((shared, armed)) = timer_of(&sleep.whose, &mut sleep.timer)
            && !armed.timer.reset(&shared, deadline.0)
        {
            // The timer has fired. The next poll sets a new one.
            sleep.forget();
        }
    }

    /// Removes the timer, if there is one.
    ///
    /// Never inlined: it reads a thread local, and a coroutine may have changed threads since its
    /// surroundings did.
    #[inline(never)]
    fn disarm(&mut self) {
        let timer = timer_of(&self.whose, &mut self.timer);
        let action = timer.and_then(|(shared, armed)| armed.timer.delete(&shared));
        self.forget();
        drop_guarded(action);
    }

    /// Forgets the timer, which is gone, or no longer waits for one, and releases the scheduler.
    fn forget(&mut self) {
        if let SleepTimer::Awaited(place) = std::mem::replace(&mut self.timer, SleepTimer::None)
            && let Some(shared) = self.whose.as_ref().and_then(Whose::hold)
        {
            drop_guarded(shared.clock.wait_no_longer(place));
        }
        if !self.on {
            self.whose = None;
        }
    }
}

/// The timer of a sleep has fired before its deadline. Reports this to a simulated system, unless
/// the scheduler has given up its timers because it ends.
#[cfg(feature = "sim")]
fn note_early(shared: &Shared) {
    if let Some(os) = shared.world.simulated()
        && !shared.lifetime.has_ended()
    {
        os.broken("a timer has fired before its deadline");
    }
}

/// Returns the timer of a sleep and its scheduler.
#[inline]
fn timer_of<'a>(
    whose: &Option<Whose>,
    timer: &'a mut SleepTimer,
) -> Option<(Hold, &'a mut ArmedSleep)> {
    let SleepTimer::Set(armed) = timer else { return None };
    Some((whose.as_ref()?.hold()?, armed))
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let sleep = self.get_mut();
        // A timer that has fired is not refused, because its process might never yield: for
        // example, if it polls the timer beside something that is always ready and knows no budget.
        if !crate::scheduler::budget::charge(task) && !sleep.has_fired() {
            return Poll::Pending;
        }
        sleep.poll_uncharged(task)
    }
}

impl Sleep {
    /// Returns `true` if no clock ever shows its deadline, as after [`Duration::MAX`]. It needs no
    /// timer.
    fn is_endless(&self) -> bool {
        self.deadline == u64::MAX
    }

    /// Returns `true` if a timer was set, and has fired.
    #[cold]
    fn has_fired(&mut self) -> bool {
        let deadline = self.deadline;
        let timer = timer_of(&self.whose, &mut self.timer);
        !crate::scheduler::budget::refuses_timers()
            && timer.is_some_and(|(shared, armed)| {
                let is_pending = armed.timer.timers(&shared).is_pending(armed.timer.id);
                !is_pending && deadline <= shared.world.now()
            })
    }

    fn poll_uncharged(&mut self, task: &TaskContext<'_>) -> Poll<()> {
        let sleep = self;
        let since = std::mem::replace(&mut sleep.since, Since::Zero);
        if since == Since::FirstPoll {
            sleep.deadline = Instant::now().0.saturating_add(sleep.deadline);
        }
        let deadline = sleep.deadline;
        let waker = waker::identity(task.waker());
        let mut moved = None;
        if let Some((shared, armed)) = timer_of(&sleep.whose, &mut sleep.timer) {
            let timers = armed.timer.timers(&shared);
            // A pending timer has not fired, whatever the clock shows. So the clock need not be
            // read.
            let pending = timers.is_pending(armed.timer.id);
            if !pending && deadline <= shared.world.now() {
                sleep.disarm();
                return Poll::Ready(());
            }
            #[cfg(feature = "sim")]
            if !pending {
                note_early(&shared);
            }
            current::note_waiting_at(Waiting::TIMER, sleep.place);
            if pending && armed.waker == waker {
                return Poll::Pending;
            }
            if pending && armed.timer.place.may_stand_still(&shared) {
                drop_guarded(armed.timer.delete(&shared));
                // The sleep keeps the scheduler from now on, because no process of it does.
                moved = Some(Whose::Scheduler(Arc::clone(&shared)));
            } else {
                let action = Action::Wake(waker::another(task.waker()).into());
                if let Ok(modified) = timers.modify(armed.timer.id, deadline, None, action) {
                    armed.timer.place.note_set(&shared, modified.earliest, deadline);
                    armed.waker = waker::identity_of_clones(task.waker());
                    drop(modified.replaced);
                    return Poll::Pending;
                }
            }
        }
        sleep.forget();
        if !sleep.on {
            sleep.whose = Some(moved.unwrap_or_else(Whose::here));
        }
        let shared = sleep.whose.as_ref().and_then(Whose::hold);
        let shared = shared.expect("it was given, and is kept, or a process of it runs here");
        if since != Since::ZeroFresh && deadline <= shared.world.now() {
            sleep.forget();
            return Poll::Ready(());
        }
        current::note_waiting_at(Waiting::TIMER, sleep.place);
        let another = waker::for_timer(&shared, task.waker());
        let timer = arm(&shared, deadline, Action::Wake(another)).or_else(|action| {
            let place = shared.clock.wait_for_timer(waker::another(task.waker()));
            // Again: a timer may have become free before this waker was registered.
            match arm(&shared, deadline, action) {
                Ok(timer) => {
                    drop_guarded(shared.clock.wait_no_longer(place));
                    Ok(timer)
                }
                Err(_) => Err(place),
            }
        });
        sleep.timer = match timer {
            Ok(timer) => {
                let waker = waker::identity_of_clones(task.waker());
                SleepTimer::Set(ArmedSleep { timer, waker })
            }
            Err(place) => SleepTimer::Awaited(place),
        };
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sleep = f.debug_struct("Sleep");
        match self.since {
            Since::FirstPoll => sleep.field("after", &Duration::from_nanos(self.deadline)),
            Since::Zero | Since::ZeroFresh => sleep.field("deadline", &Instant(self.deadline)),
        };
        sleep.finish_non_exhaustive()
    }
}

/// Polls a future, and a sleep that limits its wait. `sleep` is called only if the future has to
/// wait.
///
/// If the time is over, polls the future once more after the look at the clock: its event may have
/// come while the process waited for its worker. If the step has spent its budget, the next step
/// does this, so that a loop of timeouts lets other processes run, whatever they return. This poll
/// has a fresh budget, because each step may spend its own before.
pub(crate) fn poll_within<'a, R>(
    task: &mut TaskContext<'_>,
    mut poll: impl FnMut(&mut TaskContext<'_>) -> Poll<R>,
    sleep: impl FnOnce() -> Pin<&'a mut Sleep>,
) -> Poll<Result<R, Elapsed>> {
    if let Poll::Ready(output) = poll(task) {
        return Poll::Ready(Ok(output));
    }
    let mut sleep = sleep();
    if sleep.is_endless() {
        return Poll::Pending;
    }
    if sleep.poll_uncharged(task).is_pending() {
        return Poll::Pending;
    }
    // The future may have spent nothing.
    crate::scheduler::budget::spend();
    if crate::scheduler::budget::is_spent() && !std::mem::replace(&mut sleep.is_late, true) {
        crate::scheduler::budget::yield_step(task);
        return Poll::Pending;
    }
    sleep.is_late = false;
    let last = LastTry::begin();
    let polled = crate::scheduler::budget::with_fresh(|| poll(task));
    drop(last);
    match polled {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => Poll::Ready(Err(Elapsed)),
    }
}

/// Waits for `future`, but at most for `duration`.
///
/// The future is polled before the time counts, so a future that is complete immediately succeeds
/// even with a duration of zero. It is polled once more when the time is over.
///
/// # Errors
/// [`Elapsed`] if the future was not complete in time. The future is dropped with the [`Timeout`].
///
/// ```
/// use std::time::Duration;
/// use procession::timeout;
/// use procession::time::Elapsed;
///
/// procession::run(async {
///     assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
///     let never = std::future::pending::<()>();
///     assert_eq!(timeout(Duration::from_millis(1), never).await, Err(Elapsed));
/// });
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { sleep: sleep(duration), future: future.into_future() }
}

pin_project_lite::pin_project! {
    /// The future of [`timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut timeout = self.project();
        poll_within(task, |task| timeout.future.as_mut().poll(task), || Pin::new(timeout.sleep))
    }
}

/// The policy of an interval for ticks that it missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// Skips them. Later ticks stay at multiples of the period.
    #[default]
    Skip,
    /// Makes up for them immediately, one after the other.
    Burst,
    /// Counts the period from the late tick.
    Delay,
}

/// Returns an [`Interval`] that ticks immediately, and then every `period`, as tokio's does. For a
/// later first tick, use [`interval_at`]. A period of zero counts as one nanosecond.
///
/// ```
/// use std::time::Duration;
/// use procession::time::{Instant, interval};
///
/// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let begin = Instant::now();
///     let mut ticks = interval(Duration::from_secs(10));
///     for number in 0..3 {
///         assert_eq!(ticks.tick().await - begin, number * Duration::from_secs(10));
///     }
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    Interval::new(period, sleep(Duration::ZERO))
}

/// Returns an [`Interval`] that ticks at `start`, and then every `period`. A period of zero counts
/// as one nanosecond.
///
/// ```
/// use std::time::Duration;
/// use procession::time::{Instant, interval_at};
///
/// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let (begin, period) = (Instant::now(), Duration::from_secs(10));
///     let mut ticks = interval_at(begin + period, period);
///     for number in 1..=3 {
///         assert_eq!(ticks.tick().await - begin, number * period);
///     }
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(period, sleep_until(start))
}

/// A sequence of ticks, made by [`interval()`] or [`interval_at`]. It ends when it is dropped.
#[derive(Debug)]
pub struct Interval {
    period: u64,
    missed: MissedTickBehavior,
    sleep: Pin<Box<Sleep>>,
}

impl Interval {
    fn new(period: Duration, first: Sleep) -> Self {
        Self {
            period: nanoseconds(period).max(1),
            missed: MissedTickBehavior::Skip,
            sleep: Box::pin(first),
        }
    }

    /// Sets the policy for missed ticks. Default: [`MissedTickBehavior::Skip`].
    #[must_use]
    pub fn missed_tick_behavior(mut self, missed: MissedTickBehavior) -> Self {
        self.missed = missed;
        self
    }

    /// Waits for the next tick. Returns the moment at which it was due.
    ///
    /// # Cancellation
    /// If the future is dropped before it is complete, no tick is lost.
    #[track_caller]
    pub fn tick(&mut self) -> impl Future<Output = Instant> {
        crate::scheduler::placed::placed(async move { poll_fn(|task| self.poll_tick(task)).await })
    }

    pub(crate) fn poll_tick(&mut self, task: &mut TaskContext<'_>) -> Poll<Instant> {
        if self.sleep.as_mut().poll(task).is_pending() {
            return Poll::Pending;
        }
        let due = self.sleep.deadline();
        let now = Instant::now();
        let next = match self.missed {
            MissedTickBehavior::Burst => due.0.saturating_add(self.period),
            MissedTickBehavior::Delay => now.0.saturating_add(self.period),
            MissedTickBehavior::Skip => {
                let periods = now.0.saturating_sub(due.0) / self.period + 1;
                due.0.saturating_add(self.period.saturating_mul(periods))
            }
        };
        self.sleep.as_mut().reset(Instant(next));
        Poll::Ready(due)
    }
}

/// Runs `function` once, `delay` from now, on a worker, outside all locks.
///
/// The function must not block. If it panics, the panic is caught and discarded. If the scheduler
/// ends first, the function is dropped.
///
/// # Errors
/// [`TimerLimit`] returns the function if the scheduler has reached its limit of timers, or has
/// ended.
///
/// ```
/// use std::time::Duration;
/// use procession::sync::oneshot;
/// use procession::time::run_after;
///
/// procession::run(async {
///     let (rings, rung) = oneshot::channel();
///     let alarm = run_after(Duration::from_millis(1), move || drop(rings.send("time is over")))?;
///     assert_eq!(rung.await, Ok("time is over"));
///     assert!(!alarm.cancel(), "it has fired");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_after<F: FnOnce() + Send + 'static>(
    delay: Duration,
    function: F,
) -> Result<Timer, TimerLimit<F>> {
    let shared = crate::scheduler::owner::here();
    let when = shared.world.now().saturating_add(nanoseconds(delay));
    let function = Arc::new(TimerFunction::new(procession_sync::Mutex::new(Some(function))));
    let fired = Arc::clone(&function);
    let take = |cell: &procession_sync::Mutex<Option<F>>| cell.lock().take();
    let action = Action::Call(Arc::new(move || {
        fired.run(|cell| {
            if let Some(function) = take(cell) {
                function();
            }
        });
    }));
    match arm_function(&shared, when, None, action) {
        Ok(armed) => Ok(Timer { shared: Arc::clone(&shared), armed, end: function.end() }),
        Err(action) => {
            drop(action);
            let cell = Arc::into_inner(function).and_then(TimerFunction::into_inner);
            let function = cell.and_then(|cell| take(&cell));
            Err(TimerLimit::new(function.expect(NOT_FIRED)))
        }
    }
}

/// Runs `function` every `period`, the first time one period from now, on a worker, outside all
/// locks.
///
/// The function must not block. Missed runs are skipped, and later runs stay at multiples of the
/// period. A period of zero counts as one nanosecond.
///
/// A test clock stops at each firing, so it advances by at most one period at a time. With a short
/// period, a long sleep costs as many firings as periods fit into it.
///
/// # Errors
/// [`TimerLimit`] returns the function if the scheduler has reached its limit of timers, or has
/// ended.
///
/// ```
/// use std::time::Duration;
/// use procession::sync::channel;
/// use procession::time::run_every;
/// use procession::{Scheduler, sleep};
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let (samples, taken) = channel::unbounded();
///     let sampler = run_every(Duration::from_secs(10), move || drop(samples.try_send(())))?;
///     sleep(Duration::from_secs(35)).await;
///     sampler.cancel();
///     sleep(Duration::from_secs(35)).await;
///     assert_eq!(std::iter::from_fn(|| taken.try_recv().ok()).count(), 3);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_every<F: Fn() + Send + Sync + 'static>(
    period: Duration,
    function: F,
) -> Result<Timer, TimerLimit<F>> {
    let shared = crate::scheduler::owner::here();
    let period = NonZeroU64::new(nanoseconds(period)).unwrap_or(NonZeroU64::MIN);
    let when = shared.world.now().saturating_add(period.get());
    let function = Arc::new(TimerFunction::new(function));
    let called = Arc::clone(&function);
    let action = Action::Call(Arc::new(move || called.run(|function| function())));
    match arm_function(&shared, when, Some(period), action) {
        Ok(armed) => Ok(Timer { shared: Arc::clone(&shared), armed, end: function.end() }),
        Err(action) => {
            drop(action);
            let function = Arc::into_inner(function).and_then(TimerFunction::into_inner);
            Err(TimerLimit::new(function.expect(NOT_FIRED)))
        }
    }
}

/// Why the function of a timer that was refused is there.
const NOT_FIRED: &str =
    "the timer was refused, so it has not fired, and nobody else has its function";

/// A timer set by [`run_after`] or [`run_every`]. If this value is dropped, the timer stays set.
#[derive(Clone)]
pub struct Timer {
    shared: Arc<Shared>,
    armed: Armed,
    end: Arc<FunctionEnd>,
}

impl Timer {
    /// Removes the timer. Returns `true` if this prevented its next firing. A firing that another
    /// thread has begun continues; [`cancel_and_wait`](Self::cancel_and_wait) waits for its end.
    pub fn cancel(&self) -> bool {
        self.armed.delete(&self.shared).is_some()
    }

    /// Removes the timer as [`cancel`](Self::cancel) does, and waits until its function does not
    /// run any more. Afterwards you can release what the function uses. Returns `true` if the
    /// removal prevented the next firing.
    ///
    /// When it returns, no thread runs the function, none will, and the function was dropped. If no
    /// thread runs it, this returns immediately. A thread waits by
    /// [`wait`](crate::coroutine::Wait::wait) or by
    /// [`Scheduler::block_on`](crate::Scheduler::block_on).
    ///
    /// The function itself may call this for its own timer, and so may the `Drop` of a value that
    /// the function holds: on the thread that runs or drops the function, nothing is waited for.
    /// There are two other ways to wait forever. First, the function waits for the caller, for
    /// example for a lock that the caller holds. Second, two functions call this, each for the
    /// timer of the other function.
    ///
    /// # Cancellation
    /// The first poll removes the timer. If the future is dropped after its first poll, the timer
    /// stays removed, and the function may still run.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use procession::time::run_every;
    ///
    /// procession::run(async {
    ///     let buffer = Arc::new(vec![0_u8; 1024]);
    ///     let used = Arc::clone(&buffer);
    ///     let timer = run_every(Duration::from_micros(10), move || assert_eq!(used[0], 0))?;
    ///     procession::sleep(Duration::from_millis(1)).await;
    ///     timer.cancel_and_wait().await;
    ///     assert!(Arc::into_inner(buffer).is_some(), "no function uses it");
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn cancel_and_wait(&self) -> impl Future<Output = bool> {
        placed(async move {
            let cancelled = self.cancel();
            self.end.wait().await;
            cancelled
        })
    }

    /// Sets another moment for the next firing. Returns `true` if the timer was pending.
    ///
    /// A timer that is not pending stays as it is: its function was used up by the firing, or
    /// dropped by the removal. Set a new timer with [`run_after`], or use a [`Sleep`]: its
    /// [`reset`](Sleep::reset) also works after its deadline. (Go's `Reset` restarts such a timer,
    /// because it keeps its function.)
    pub fn reset(&self, when: Instant) -> bool {
        self.armed.reset(&self.shared, when.0)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.armed).finish()
    }
}

struct ArmedSleep {
    timer: Armed,
    /// Identifies the waker that the timer holds, which keeps the address in use, or the waker of
    /// the process that the timer wakes.
    waker: (usize, usize),
}
