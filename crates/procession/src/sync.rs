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

use procession_sync::Mutex as Lock;

use crate::body::drop_guarded;
use crate::time::timeout;
use crate::waiters::{Another, Place};
use crate::{Waiting, here};

mod gate;
#[expect(unsafe_code, reason = "who holds the permits has the value")]
mod locks;

use self::gate::{Entry, Gate};
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
        if !here::charge(task) {
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
        here::note_waiting(Waiting::LOCK);
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

/// Lets out those who wait at it. Nothing is kept for those who come later.
struct Bell(Gate);

impl Bell {
    fn new() -> Self {
        Self(Gate::new(0))
    }

    fn ring(&self, most: usize) {
        self.0.ring(most).wake();
    }
}

/// Somebody who waits at a bell.
struct Listener<'a> {
    bell: &'a Bell,
    place: Option<Place>,
}

impl<'a> Listener<'a> {
    fn new(bell: &'a Bell) -> Self {
        Self { bell, place: None }
    }

    /// Is let out by the next ring. Not before this was called.
    fn listen(&mut self, task: &TaskContext<'_>) {
        self.place = Some(self.bell.0.enlist(task.waker().clone()));
    }

    /// Whether it was let out.
    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<()> {
        match self.bell.0.look(&mut self.place, &mut Another::of(task.waker())) {
            None if self.place.is_some() => {
                here::note_waiting(Waiting::LOCK);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Gives up without passing anything on.
    fn forget(&mut self) {
        if let Some(place) = self.place.take() {
            let (own, woken) = self.bell.0.cancel_ring(place);
            drop_guarded(own);
            drop(woken);
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let (own, woken) = self.bell.0.cancel_ring(place);
            drop_guarded(own);
            woken.wake();
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

/// The most permits that there may be.
const PERMITS_MAX: usize = usize::MAX >> 3;

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
        here::spend();
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

    /// Adds permits.
    pub fn add(&self, permits: usize) {
        self.0.release(permits.min(PERMITS_MAX)).wake();
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
        Self(Bell::new())
    }

    /// Unlocks the mutex, waits for a notice, and locks it again. What is notified after this began to wait, and it has begun when the mutex is
    /// unlocked, is not missed. What it waits for may have changed again by the time it has the lock.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has unlocked the mutex; its notice goes to the next who waits.
    pub async fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        self.wait_unlocked(guard).await;
        mutex.lock().await
    }

    async fn wait_unlocked<T: ?Sized>(&self, guard: MutexGuard<'_, T>) {
        let mut listener = Listener::new(&self.0);
        let mut guard = Some(guard);
        poll_fn(|task| {
            if !here::charge(task) {
                return Poll::Pending;
            }
            if let Some(guard) = guard.take() {
                listener.listen(task);
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

    /// As [`wait`](Self::wait), for a notice that comes within `patience`; says whether one did. Locking again may take longer.
    pub async fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex();
        let notified = timeout(patience, self.wait_unlocked(guard)).await.is_ok();
        (mutex.lock().await, notified)
    }

    /// Lets the one out who has waited longest.
    pub fn notify_one(&self) {
        here::spend();
        self.0.ring(1);
    }

    /// Lets all out who wait.
    pub fn notify_all(&self) {
        here::spend();
        self.0.ring(usize::MAX);
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
pub struct WaitGroup(Arc<Group>);

struct Group {
    jobs: Lock<usize>,
    bell: Bell,
}

impl Group {
    fn jobs<R>(&self, change: impl FnOnce(&mut usize) -> R) -> R {
        change(&mut self.jobs.lock().expect("nothing that can panic runs under this lock"))
    }
}

/// A job of a [`WaitGroup`]; it is done when this is dropped.
#[must_use = "a job is done when this is dropped"]
pub struct Job(Arc<Group>);

impl WaitGroup {
    /// Without a job.
    pub fn new() -> Self {
        Self(Arc::new(Group { jobs: Lock::new(0), bell: Bell::new() }))
    }

    /// A further job.
    pub fn job(&self) -> Job {
        self.0.jobs(|jobs| *jobs += 1);
        Job(Arc::clone(&self.0))
    }

    /// Jobs that are not done.
    pub fn jobs(&self) -> usize {
        self.0.jobs(|jobs| *jobs)
    }

    /// Waits until no job is left: at once, if there is none.
    pub async fn wait(&self) {
        let mut listener = Listener::new(&self.0.bell);
        poll_fn(|task| {
            if !here::charge(task) {
                return Poll::Pending;
            }
            if listener.place.is_none() {
                if self.jobs() == 0 {
                    return Poll::Ready(());
                }
                listener.listen(task);
                // Once more: the last may have been done before this listened.
                if self.jobs() == 0 {
                    listener.forget();
                    return Poll::Ready(());
                }
            }
            listener.poll(task)
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
        let left = self.0.jobs(|jobs| {
            *jobs -= 1;
            *jobs
        });
        if left == 0 {
            self.0.bell.ring(usize::MAX);
        }
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
    arrived: Lock<usize>,
    bell: Bell,
}

impl Barrier {
    /// For `size`; 0 is taken for 1.
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), arrived: Lock::new(0), bell: Bell::new() }
    }

    /// Waits until as many have come; says whether this was the last.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has not come, unless all had.
    pub async fn wait(&self) -> bool {
        let mut visitor = Visitor { barrier: self, listener: Listener::new(&self.bell) };
        poll_fn(|task| {
            if !here::charge(task) {
                return Poll::Pending;
            }
            if visitor.listener.place.is_none() && visitor.arrive(task) {
                return Poll::Ready(true);
            }
            visitor.listener.poll(task).map(|()| false)
        })
        .await
    }
}

/// Somebody at a barrier. Who arrives, and who goes, does so under the lock on the number of those who have.
struct Visitor<'a> {
    barrier: &'a Barrier,
    listener: Listener<'a>,
}

impl Visitor<'_> {
    fn arrive(&mut self, task: &TaskContext<'_>) -> bool {
        let barrier = self.barrier;
        // Cloned outside the lock: it is the user's code.
        let waker = task.waker().clone();
        let mut arrived = barrier.arrived.lock().expect("nothing that can panic runs under this lock");
        if *arrived + 1 < barrier.size {
            *arrived += 1;
            self.listener.place = Some(barrier.bell.0.enlist(waker));
            return false;
        }
        *arrived = 0;
        let woken = barrier.bell.0.ring(usize::MAX);
        drop(arrived);
        woken.wake();
        true
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        let barrier = self.barrier;
        let mut arrived = barrier.arrived.lock().expect("nothing that can panic runs under this lock");
        let Some(place) = self.listener.place.take() else { return };
        let (own, woken) = barrier.bell.0.cancel_ring(place);
        // Who was let out had arrived, with all others.
        *arrived -= usize::from(own.is_some());
        drop(arrived);
        drop_guarded(own);
        drop(woken);
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("size", &self.size).finish_non_exhaustive()
    }
}
