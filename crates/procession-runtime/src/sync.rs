//! Synchronisation between processes: locks, semaphores, conditions, barriers and channels.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::sync::bell::{Bell, Ringing};
use procession_protocols::sync::wait_list::ServedWaiters;

use crate::process::served::{WakeServed, wake};
use crate::process::unwind::drop_guarded;
use crate::scheduler::budget::{charge_act, in_turn};
use crate::time;

/// Shows guards as the values that they guard.
macro_rules! shown {
    ($($guard:ty),* $(,)?) => {$(
        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&**self, f)
            }
        }
    )*};
}

pub mod broadcast;
pub(crate) mod cancellation;
pub mod channel;
mod error;
#[expect(unsafe_code, reason = "the guard that holds the permit has the value")]
mod mutex;
mod notify;
pub mod oneshot;
#[expect(unsafe_code, reason = "the guard that holds the permits has the value")]
mod rw_lock;
pub(crate) mod select;
mod semaphore;
pub mod watch;

pub use self::cancellation::{CancellationToken, DropGuard};
pub use self::error::{AcquireError, SendError};
pub use self::mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use self::notify::{Notified, Notify, OwnedNotified};
pub use self::rw_lock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use self::semaphore::{OwnedPermits, Permits, Semaphore};
use crate::scheduler::listener::BellListener;
pub use crate::util::recv_error::RecvError;

/// A condition variable: waits until a value in a [`Mutex`] changes.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::{Condvar, Mutex};
///
/// procession::run(async {
///     let shared = Arc::new((Mutex::new(0), Condvar::new()));
///     for _ in 0..3 {
///         let shared = shared.clone();
///         drop(procession::spawn(async move {
///             *shared.0.lock().await += 1;
///             shared.1.notify_one();
///         }));
///     }
///     let (count, changed) = &*shared;
///     let guard = count.lock().await;
///     assert_eq!(*changed.wait_while(guard, |count| *count < 3).await, 3);
/// });
/// ```
pub struct Condvar(Bell);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Self {
        Self(Bell::new(()))
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    ///
    /// The wait begins when the mutex is unlocked, and no notification after that moment is missed.
    /// When the mutex is locked again, the value may have changed once more. Use
    /// [`wait_while`](Self::wait_while) to check a condition in a loop.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the mutex stays unlocked. A notification that
    /// it has received goes to the next waiter that was waiting when the notification was given.
    #[track_caller]
    pub fn wait<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> impl Future<Output = MutexGuard<'a, T>> {
        crate::scheduler::placed::placed(async move {
            let mutex = guard.mutex();
            let mut listener = BellListener::new(&self.0);
            Self::wait_unlocked(&mut listener, guard).await;
            let guard = mutex.lock().await;
            listener.done();
            guard
        })
    }

    async fn wait_unlocked<T: ?Sized>(listener: &mut BellListener<'_>, guard: MutexGuard<'_, T>) {
        let mut guard = Some(guard);
        in_turn(|task| {
            if let Some(guard) = guard.take() {
                listener.listen(task, |()| true);
                drop(guard);
            }
            listener.poll(task)
        })
        .await;
    }

    /// Waits as long as `unwanted` returns `true` for the value.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the mutex stays unlocked; see
    /// [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut unwanted: impl FnMut(&mut T) -> bool,
    ) -> impl Future<Output = MutexGuard<'a, T>> {
        crate::scheduler::placed::placed(async move {
            while unwanted(&mut guard) {
                guard = self.wait(guard).await;
            }
            guard
        })
    }

    /// Like [`wait`](Self::wait), but waits for at most `timeout`. Returns the guard, and `true` if
    /// a notification arrived in time. Locking the mutex again is not part of the timeout.
    #[track_caller]
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> impl Future<Output = (MutexGuard<'a, T>, bool)> {
        crate::scheduler::placed::placed(async move {
            let mutex = guard.mutex();
            let mut listener = BellListener::new(&self.0);
            // Ignored: a notification may come between the end of the timeout and `leave`, and it
            // counts.
            let _ = time::timeout(timeout, Self::wait_unlocked(&mut listener, guard)).await;
            let notified = listener.leave();
            let guard = mutex.lock().await;
            listener.done();
            (guard, notified)
        })
    }

    /// Wakes the waiter that has waited longest, if there is one.
    pub fn notify_one(&self) {
        crate::scheduler::budget::spend();
        wake(self.0.change(Ringing::ring_one));
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        crate::scheduler::budget::spend();
        self.0.change(Ringing::ring_all).wake();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar(..)")
    }
}

/// A value that is created once, by the first caller that needs it.
///
/// ```
/// procession::run(async {
///     let once = procession::sync::OnceCell::new();
///     assert_eq!(*once.get_or_init(async { 1 }).await, 1);
///     assert_eq!(*once.get_or_init(async { 2 }).await, 1, "the second future never runs");
/// });
/// ```
pub struct OnceCell<T> {
    turn: Semaphore,
    value: OnceLock<T>,
}

impl<T> OnceCell<T> {
    /// Creates a cell without a value.
    pub fn new() -> Self {
        Self { turn: Semaphore::new(1), value: OnceLock::new() }
    }

    /// Returns the value, or `None` if it has not been created.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value. If there is none, `make` creates the value, while other callers wait.
    ///
    /// If `make` calls `get_or_init` on the same cell, it waits forever, because it waits for
    /// itself.
    ///
    /// # Cancellation
    /// If the caller that creates the value is dropped or panics, the next waiting caller creates
    /// it with its own future.
    #[track_caller]
    pub fn get_or_init(&self, make: impl Future<Output = T>) -> impl Future<Output = &T> {
        crate::scheduler::placed::placed(async move {
            if let Some(value) = self.value.get() {
                return value;
            }
            let turn = self.turn.acquire(1).await;
            if let Some(value) = self.value.get() {
                return value;
            }
            let value = make.await;
            let value = self.value.get_or_init(|| value);
            drop(turn);
            value
        })
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceCell<T> {
    fn from(value: T) -> Self {
        Self { turn: Semaphore::new(1), value: OnceLock::from(value) }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceCell").field(&self.get()).finish()
    }
}

/// Waits until a number of jobs are done.
///
/// A job is a [`Job`] value that the code doing the work owns. The job is done when this value is
/// dropped, so a panic ends a job as well.
///
/// ```
/// procession::run(async {
///     let group = procession::sync::WaitGroup::new();
///     for _ in 0..3 {
///         let job = group.job();
///         drop(procession::spawn(async move { drop(job) }));
///     }
///     group.wait().await;
///     assert_eq!(group.jobs(), 0);
/// });
/// ```
pub struct WaitGroup(Arc<Bell<usize>>);

/// A job of a [`WaitGroup`]. It is done when this value is dropped.
#[must_use = "a job is done when this is dropped"]
pub struct Job(Arc<Bell<usize>>);

impl WaitGroup {
    /// Creates a group without jobs.
    pub fn new() -> Self {
        Self(Arc::new(Bell::new(0)))
    }

    /// Adds a job.
    pub fn job(&self) -> Job {
        self.0.change(|ringing| ringing.about += 1);
        Job(Arc::clone(&self.0))
    }

    /// Returns the number of jobs that are not done.
    pub fn jobs(&self) -> usize {
        self.0.change(|ringing| ringing.about)
    }

    /// Waits until no job is left, and returns immediately if there is none. A job that begins
    /// after the last job was done does not prolong the wait.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            let mut listener = BellListener::new(&*self.0);
            in_turn(|task| {
                let is_over = !listener.listens()
                    && (self.jobs() == 0 || !listener.listen(task, |&mut jobs| jobs > 0));
                if is_over { Poll::Ready(()) } else { listener.poll(task) }
            })
            .await;
        })
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for WaitGroup {
    /// Returns another handle to the same group. A handle is not a job.
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let woken = self.0.ring_all_if(|jobs| {
            *jobs -= 1;
            *jobs == 0
        });
        woken.wake();
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitGroup").field(&self.jobs()).finish()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job(..)")
    }
}

/// A meeting point: a fixed number of processes wait until all have arrived, as often as they like.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::Barrier;
///
/// procession::run(async {
///     let barrier = Arc::new(Barrier::new(2));
///     let other = barrier.clone();
///     let other = procession::spawn(async move { other.wait().await });
///     let was_last = barrier.wait().await;
///     assert!(was_last != other.await?, "exactly one of the two was the last to arrive");
///     Ok::<(), procession::Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
pub struct Barrier {
    size: usize,
    /// Counts the arrivals, and rings once `size` processes have arrived.
    arrived: Bell<usize>,
}

impl Barrier {
    /// Creates a barrier for `size` callers. A size of 0 counts as 1.
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), arrived: Bell::new(0) }
    }

    /// Waits until `size` callers have arrived. Returns `true` to the caller that arrives last.
    ///
    /// # Cancellation
    /// If the future is dropped before all callers have arrived, the arrival of its caller no
    /// longer counts.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = bool> {
        crate::scheduler::placed::placed(async move {
            let mut visitor =
                Visitor { size: self.size, listener: BellListener::new(&self.arrived) };
            poll_fn(|task| {
                let may_complete = charge_act(task);
                if !visitor.listener.listens() && visitor.arrive(task, may_complete) {
                    return Poll::Ready(true);
                }
                if !visitor.listener.listens() {
                    return Poll::Pending;
                }
                visitor.listener.poll(task).map(|()| false)
            })
            .await
        })
    }
}

/// A caller that has arrived at a barrier.
struct Visitor<'a> {
    size: usize,
    listener: BellListener<'a, usize>,
}

impl Visitor<'_> {
    /// Arrives, unless this completes the round and `may_complete` is false. Returns `true` if it
    /// has completed the round.
    fn arrive(&mut self, task: &TaskContext<'_>, may_complete: bool) -> bool {
        let (size, mut completes) = (self.size, false);
        let mut woken = ServedWaiters::default();
        // Cloned here, and dropped outside the lock if it is not needed, since it may be user code.
        let mut waker = Some(crate::process::waker::another(task.waker()));
        self.listener.place = self.listener.bell.change(|ringing| {
            if ringing.about + 1 < size {
                ringing.about += 1;
                return waker.take().map(|waker| ringing.enlist(waker));
            }
            if may_complete {
                completes = true;
                ringing.about = 0;
                woken = ringing.ring_all();
            }
            None
        });
        woken.wake();
        completes
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        let Some(place) = self.listener.place.take() else { return };
        // A visitor that was released has arrived in a round that is over, so it is not subtracted.
        let left = self.listener.bell.change(|ringing| {
            let left = ringing.leave(place);
            ringing.about -= usize::from(left.is_err());
            left
        });
        drop_guarded(left.err().flatten());
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("size", &self.size).finish_non_exhaustive()
    }
}
