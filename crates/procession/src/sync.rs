//! What processes share: locks, permits, conditions, and meetings.
//!
//! All kinds of process use them, and plain threads ([`Wait`](crate::Wait)). Waiting for them suspends the process, not its worker; a guard may be
//! held across an `.await`. They are handed over: who waits is served first come, first served, and one that is dropped while it waits
//! passes on what it was given. None of them is poisoned by a panic: the guard is dropped with the process.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crate::Waiting;
use crate::process::unwind::drop_guarded;
use crate::scheduler::current;
use crate::sync::wait_list::{Another, Place, Woken, wake};
use crate::time::timeout;

pub(crate) mod batch_semaphore;
mod bell;
pub mod channel;
#[expect(unsafe_code, reason = "who holds the permits has the value")]
mod locks;
pub(crate) mod select;
pub(crate) mod wait_list;

use self::batch_semaphore::{Entry, Gate, PERMITS_MAX};
use self::bell::{Bell, Notice, Ringing};
pub use self::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Waits for permits of a gate; `false` if it was closed.
#[derive(Debug)]
struct Enter<'a> {
    gate: &'a Gate,
    wanted: usize,
    place: Option<Place>,
}

impl<'a> Enter<'a> {
    fn new(gate: &'a Gate, wanted: usize) -> Self {
        Self { gate, wanted, place: None }
    }
}

impl Future for Enter<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<bool> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let gate = self.gate;
        let mut another = Another::of(task.waker());
        if self.place.is_some() {
            if let Some(granted) = gate.look(&mut self.place, &mut another) {
                return Poll::Ready(granted);
            }
        } else {
            match gate.acquire_or_wait(self.wanted, &mut another) {
                Entry::Granted => return Poll::Ready(true),
                Entry::Closed => return Poll::Ready(false),
                Entry::Waits(place) => self.place = Some(place),
            }
        }
        current::note_waiting(Waiting::LOCK);
        Poll::Pending
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let (own, woken) = self.gate.cancel(place);
            drop_guarded(own);
            woken.wake();
        }
    }
}

/// A waiter at a bell. Dropped before it is [done](Self::done), it passes its notice on, if it has
/// one that others may have.
struct Listener<'a, S = ()> {
    bell: &'a Bell<S>,
    place: Option<Place>,
    notice: Option<Notice>,
}

impl<'a, S> Listener<'a, S> {
    fn new(bell: &'a Bell<S>) -> Self {
        Self { bell, place: None, notice: None }
    }

    /// Whether it has listened before.
    fn listens(&self) -> bool {
        self.place.is_some() || self.notice.is_some()
    }

    /// Begins to listen, if `listens` says so. Both happen in one critical section.
    fn listen(&mut self, task: &TaskContext<'_>, listens: impl FnOnce(&mut S) -> bool) -> bool {
        // Cloned, and dropped if it is not wanted, outside the lock: it may be the user's code.
        let mut waker = Some(task.waker().clone());
        self.place = self.bell.change(|ringing| {
            let waker = listens(&mut ringing.about).then(|| waker.take()).flatten()?;
            Some(ringing.enlist(waker))
        });
        self.place.is_some()
    }

    /// Waits until it is released.
    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<()> {
        if self.notice.is_none() {
            self.notice = self.bell.look(&mut self.place, &mut Another::of(task.waker()));
        }
        if self.notice.is_none() {
            current::note_waiting(Waiting::LOCK);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Listens no longer. Returns `true` if it was released before.
    fn leave(&mut self) -> bool {
        if let Some(place) = self.place.take() {
            match self.bell.leave(place) {
                Ok(notice) => self.notice = Some(notice),
                Err(own) => drop_guarded(own),
            }
        }
        self.notice.is_some()
    }

    /// The notice was acted on, so it is not passed on.
    fn done(&mut self) {
        self.notice = None;
    }
}

impl<S> Drop for Listener<'_, S> {
    fn drop(&mut self) {
        self.leave();
        if let Some(notice) = self.notice.take() {
            wake(self.bell.pass_on(notice));
        }
    }
}

/// Permits that are taken and given back.
///
/// ```
/// use procession::sync::Semaphore;
///
/// procession::run(async {
///     let seats = Semaphore::new(2);
///     let both = seats.acquire(2).await.expect("it is not closed");
///     assert!(seats.try_acquire(1).is_none());
///     drop(both);
///     assert!(seats.try_acquire(1).is_some());
/// });
/// ```
pub struct Semaphore(Gate);

impl Semaphore {
    /// With this many permits, at most an eighth of `usize`.
    pub fn new(permits: usize) -> Self {
        Self(Gate::new(permits.min(PERMITS_MAX)))
    }

    /// Takes permits, and waits until there are as many. Those who come later wait behind, also for fewer. `None` once it is closed.
    ///
    /// More than there will ever be are waited for for ever.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has taken none.
    pub async fn acquire(&self, permits: usize) -> Option<Permits<'_>> {
        Enter::new(&self.0, permits).await.then(|| Permits { semaphore: self, permits })
    }

    /// Takes permits if there are as many, nobody waits, and it is not closed.
    pub fn try_acquire(&self, permits: usize) -> Option<Permits<'_>> {
        crate::scheduler::budget::spend();
        self.0.try_acquire(permits).then(|| Permits { semaphore: self, permits })
    }

    /// As [`acquire`](Self::acquire), for at most `patience`.
    ///
    /// # Errors
    /// [`Elapsed`](crate::Elapsed) if the time is over first.
    pub async fn acquire_timeout(
        &self,
        permits: usize,
        patience: Duration,
    ) -> Result<Option<Permits<'_>>, crate::Elapsed> {
        timeout(patience, self.acquire(permits)).await
    }

    /// Adds permits. At most an eighth of `usize` are free at once; what would be more is dropped.
    pub fn add(&self, permits: usize) {
        self.0.release(permits).wake();
    }

    /// Permits that are free.
    pub fn available(&self) -> usize {
        self.0.free()
    }

    /// Gives no permits any more, also to those who wait. What is taken is not affected.
    pub fn close(&self) {
        self.0.close().wake();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}

/// Permits that were taken; dropping them gives them back.
#[must_use = "dropped permits are given back"]
pub struct Permits<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl Permits<'_> {
    /// How many.
    pub fn count(&self) -> usize {
        self.permits
    }

    /// Takes them out of the semaphore for good.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for Permits<'_> {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.0.release(self.permits).wake();
        }
    }
}

impl fmt::Debug for Permits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permits").field(&self.permits).finish()
    }
}

/// Waiting for something that a [`Mutex`] guards to become true.
///
/// ```
/// use procession::sync::{Condvar, Mutex};
///
/// procession::run(async {
///     let count = std::sync::Arc::new((Mutex::new(0), Condvar::new()));
///     for _ in 0..3 {
///         let count = count.clone();
///         drop(procession::spawn(async move {
///             *count.0.lock().await += 1;
///             count.1.notify_one();
///         }));
///     }
///     let guard = count.0.lock().await;
///     assert_eq!(*count.1.wait_while(guard, |count| *count < 3).await, 3);
/// });
/// ```
pub struct Condvar(Bell);

impl Condvar {
    /// Nobody waits.
    pub fn new() -> Self {
        Self(Bell::new(()))
    }

    /// Unlocks the mutex, waits for a notice, and locks it again. What is notified after this began to wait, and it has begun when the mutex is
    /// unlocked, is not missed. What it waits for may have changed again by the time it has the lock.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has unlocked the mutex. Its notice goes to the next that
    /// waited when the notice was given.
    pub async fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        let mut listener = Listener::new(&self.0);
        Self::wait_unlocked(&mut listener, guard).await;
        let guard = mutex.lock().await;
        listener.done();
        guard
    }

    async fn wait_unlocked<T: ?Sized>(listener: &mut Listener<'_>, guard: MutexGuard<'_, T>) {
        let mut guard = Some(guard);
        poll_fn(|task| {
            if !crate::scheduler::budget::charge(task) {
                return Poll::Pending;
            }
            if let Some(guard) = guard.take() {
                listener.listen(task, |()| true);
                drop(guard);
            }
            listener.poll(task)
        })
        .await;
    }

    /// Waits as long as `unwanted` holds.
    pub async fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut unwanted: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while unwanted(&mut guard) {
            guard = self.wait(guard).await;
        }
        guard
    }

    /// As [`wait`](Self::wait), for a notice that comes within `patience`. Returns `true` beside
    /// the guard if one did. Locking again may take longer.
    pub async fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex();
        let mut listener = Listener::new(&self.0);
        // Ignored: a notice may come between the end of the time and the leave, and counts.
        let _ = timeout(patience, Self::wait_unlocked(&mut listener, guard)).await;
        let notified = listener.leave();
        let guard = mutex.lock().await;
        listener.done();
        (guard, notified)
    }

    /// Lets the one out who has waited longest.
    pub fn notify_one(&self) {
        crate::scheduler::budget::spend();
        wake(self.0.change(Ringing::ring_one));
    }

    /// Lets all out who wait.
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

/// A value that is made once, by the first who needs it.
///
/// ```
/// procession::run(async {
///     let once = procession::sync::OnceCell::new();
///     assert_eq!(*once.get_or_init(async { 1 }).await, 1);
///     assert_eq!(*once.get_or_init(async { 2 }).await, 1);
/// });
/// ```
pub struct OnceCell<T> {
    turn: Semaphore,
    value: OnceLock<T>,
}

impl<T> OnceCell<T> {
    /// Without a value.
    pub fn new() -> Self {
        Self { turn: Semaphore::new(1), value: OnceLock::new() }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value; if there is none, `make` makes it, while others wait.
    ///
    /// # Cancellation
    /// If who makes it is dropped, or panics, the next who waits makes it instead, with his own future.
    pub async fn get_or_init(&self, make: impl Future<Output = T>) -> &T {
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
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceCell").field(&self.get()).finish()
    }
}

/// Waits until all of a number of jobs are done.
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

/// A job of a [`WaitGroup`]; it is done when this is dropped.
#[must_use = "a job is done when this is dropped"]
pub struct Job(Arc<Bell<usize>>);

impl WaitGroup {
    /// Without a job.
    pub fn new() -> Self {
        Self(Arc::new(Bell::new(0)))
    }

    /// A further job.
    pub fn job(&self) -> Job {
        self.0.change(|ringing| ringing.about += 1);
        Job(Arc::clone(&self.0))
    }

    /// Jobs that are not done.
    pub fn jobs(&self) -> usize {
        self.0.change(|ringing| ringing.about)
    }

    /// Waits until no job is left: at once, if there is none. Jobs that begin after the last one
    /// was done do not prolong the wait.
    pub async fn wait(&self) {
        let mut listener = Listener::new(&*self.0);
        poll_fn(|task| {
            if !crate::scheduler::budget::charge(task) {
                return Poll::Pending;
            }
            let is_over = !listener.listens() && (self.jobs() == 0 || !listener.listen(task, |&mut jobs| jobs > 0));
            if is_over { Poll::Ready(()) } else { listener.poll(task) }
        })
        .await;
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for WaitGroup {
    /// The same group; it is no job.
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

/// Where a number of processes wait for each other, again and again.
///
/// ```
/// procession::run(async {
///     let barrier = std::sync::Arc::new(procession::sync::Barrier::new(2));
///     let other = barrier.clone();
///     let other = procession::spawn(async move { other.wait().await });
///     let first = barrier.wait().await;
///     assert!(first != other.await?, "one of them came last");
///     Ok::<(), procession::Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
pub struct Barrier {
    size: usize,
    /// Rings when as many have arrived.
    arrived: Bell<usize>,
}

impl Barrier {
    /// For `size`; 0 is taken for 1.
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), arrived: Bell::new(0) }
    }

    /// Waits until as many have come; says whether this was the last.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has not come, unless all had.
    pub async fn wait(&self) -> bool {
        let mut visitor = Visitor { size: self.size, listener: Listener::new(&self.arrived) };
        poll_fn(|task| {
            if !crate::scheduler::budget::charge(task) {
                return Poll::Pending;
            }
            if !visitor.listener.listens() && visitor.arrive(task) {
                return Poll::Ready(true);
            }
            visitor.listener.poll(task).map(|()| false)
        })
        .await
    }
}

/// A visitor of a barrier.
struct Visitor<'a> {
    size: usize,
    listener: Listener<'a, usize>,
}

impl Visitor<'_> {
    /// Returns `true` if all have come.
    fn arrive(&mut self, task: &TaskContext<'_>) -> bool {
        let size = self.size;
        let mut woken = Woken::default();
        // Cloned, and dropped if it is not wanted, outside the lock: it may be the user's code.
        let mut waker = Some(task.waker().clone());
        self.listener.place = self.listener.bell.change(|ringing| {
            if ringing.about + 1 < size {
                ringing.about += 1;
                return waker.take().map(|waker| ringing.enlist(waker));
            }
            ringing.about = 0;
            woken = ringing.ring_all();
            None
        });
        woken.wake();
        self.listener.place.is_none()
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        let Some(place) = self.listener.place.take() else { return };
        // One that was released had arrived with all others, in a round that is over.
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
