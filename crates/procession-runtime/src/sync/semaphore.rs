//! Semaphores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_protocols::sync::batch_semaphore::{
    BatchSemaphore, Entry, Held, Holder, PERMITS_MAX,
};
use procession_protocols::sync::wait_list::Place;

use crate::process::served::{TaskWaker, WakeServed};
use crate::process::unwind::drop_guarded;
use crate::process::wait_edge::{WaitProof, mutation};
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::process::waker;
use crate::scheduler::budget::{charge_after, is_refused_first};
use crate::scheduler::{current, lending};
use crate::sync::error::AcquireError;
use crate::time;

/// The future of an acquisition. Returns `false` if the semaphore is closed.
#[derive(Debug)]
pub(super) struct Acquire<'a> {
    semaphore: &'a BatchSemaphore,
    wanted: usize,
    place: Option<Place>,
    /// `true` while it keeps permits that it has not returned.
    keeps: bool,
    /// The caller, if this is a lock.
    by: Holder,
    what: Acquired,
}

/// What an acquisition waits for.
#[derive(Clone, Copy, Debug)]
enum Acquired {
    Permits,
    Lock,
    LockForReading,
}

impl<'a> Acquire<'a> {
    pub(super) fn new(semaphore: &'a BatchSemaphore, wanted: usize) -> Self {
        Self::of(semaphore, wanted, Holder::UNKNOWN, Acquired::Permits)
    }

    /// For a lock. `by` is the caller.
    pub(super) fn on_lock(semaphore: &'a BatchSemaphore, all: usize, by: Holder) -> Self {
        Self::of(semaphore, all, by, Acquired::Lock)
    }

    /// For a lock, of which the caller wants one permit of many.
    pub(super) fn for_reading(semaphore: &'a BatchSemaphore, by: Holder) -> Self {
        Self::of(semaphore, 1, by, Acquired::LockForReading)
    }

    fn of(semaphore: &'a BatchSemaphore, wanted: usize, by: Holder, what: Acquired) -> Self {
        Self { semaphore, wanted, place: None, keeps: false, by, what }
    }
}

impl Future for Acquire<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<bool> {
        if is_refused_first(task) {
            return Poll::Pending;
        }
        let acquired = self.poll_uncharged(task);
        charge_after(task, acquired, |granted| self.keeps = granted)
    }
}

impl Acquire<'_> {
    fn poll_uncharged(&mut self, task: &TaskContext<'_>) -> Poll<bool> {
        if std::mem::take(&mut self.keeps) {
            return Poll::Ready(true);
        }
        let semaphore = self.semaphore;
        let mut another = TaskWaker::of(task.waker());
        let held = if self.place.is_some() {
            match semaphore.look(&mut self.place, &mut another) {
                Ok(granted) => return Poll::Ready(granted),
                Err(held) => held,
            }
        } else {
            match semaphore.acquire_or_wait(self.wanted, self.by, &mut another) {
                Entry::Granted => return Poll::Ready(true),
                Entry::Closed => return Poll::Ready(false),
                Entry::Waits(place, held) => {
                    self.place = Some(place);
                    held
                }
            }
        };
        match self.what {
            Acquired::Permits => current::note_waiting_for_some(Waiting::LOCK),
            Acquired::Lock => self.note_lock(&held, false, task.waker()),
            Acquired::LockForReading => self.note_lock(&held, true, task.waker()),
        }
        Poll::Pending
    }

    /// Notes that the running process waits for a lock, which was held like this when it found
    /// that.
    fn note_lock(&self, held: &Held, reads: bool, waker: &Waker) {
        let lent = note_lock(self.semaphore, held, reads, waker);
        if let (Some(place), Some(priority)) = (&self.place, lending::lending_priority())
            && !self.semaphore.note_priority(place, held.by, priority, lent)
        {
            // It has another holder since. Lends to that one.
            waker.wake_by_ref();
        }
    }
}

/// Notes which process the running one waits for. Returns `true` if it has lent its priority.
fn note_lock(semaphore: &BatchSemaphore, held: &Held, reads: bool, waker: &Waker) -> bool {
    let own = current::as_holder();
    if own.generation == 0 {
        return false;
    }
    let by = held.by;
    // Several may read, and a reader that finds permits waits for its turn.
    let waits_for_holder = held.is_whole || !reads;
    let is_near = by.scheduler == own.scheduler || by.generation == 0;
    let target = match held.is_whole && is_near || by == own {
        true => WaitTarget::new(by.slot, by.generation),
        false => WaitTarget::UNKNOWN,
    };
    let is_granted = mutation::is(mutation::BUILT, mutation::OWN_IS_GRANTED);
    let proof = if by == own && waits_for_holder && !is_granted {
        // Not by this wait, which would have been granted.
        WaitProof::Sole
    } else {
        // Another waiter may be faster, and name it.
        let name = held.name.or_else(|| Some(semaphore.name(current::name_lock()?)));
        match name {
            Some((home, number)) if home == own.scheduler && reads => WaitProof::Turn(number),
            Some((home, number)) if home == own.scheduler => WaitProof::Lock(number),
            _ => WaitProof::None,
        }
    };
    current::note_waiting_for(waker::lender(waker), Waiting::LOCK, target, proof)
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let (own, woken, by) = self.semaphore.cancel(place);
            drop_guarded(own);
            woken.wake();
            if by.scheduler == current::as_holder().scheduler {
                lending::take_back_loan(WaitTarget::new(by.slot, by.generation));
            }
        }
        if self.keeps {
            self.semaphore.release(self.wanted).wake();
        }
    }
}

/// Takes permits without waiting.
pub(super) fn try_acquire(
    semaphore: &BatchSemaphore,
    permits: usize,
    by: Holder,
) -> Result<(), AcquireError> {
    if semaphore.try_acquire(permits, by) {
        return Ok(());
    }
    // A semaphore stays closed, so this is also true of the attempt unless it was closed since.
    let is_closed = semaphore.is_closed();
    Err(if is_closed { AcquireError::Closed } else { AcquireError::WouldBlock })
}

/// A counting semaphore: a number of permits that callers take and return. For example, it limits
/// how many requests run concurrently.
///
/// Waiters get their permits in the order in which they began to wait. A waiter that wants many
/// permits delays the waiters behind it, even if there are enough permits for them.
///
/// Each method takes the number of permits. So `acquire()` and `acquire_many(n)` of tokio are
/// `acquire(1)` and `acquire(n)` here, and the same holds for the owned permits.
///
/// ```
/// use procession::sync::Semaphore;
///
/// procession::run(async {
///     let connections = Semaphore::new(2);
///     let both = connections.acquire(2).await.expect("the semaphore is not closed");
///     assert!(connections.try_acquire(1).is_err());
///     drop(both);
///     assert_eq!(connections.available_permits(), 2);
///     assert!(connections.try_acquire(1).is_ok());
/// });
/// ```
pub struct Semaphore(BatchSemaphore);

impl Semaphore {
    /// Creates a semaphore with the given number of permits, at most `usize::MAX / 8`. A larger
    /// number counts as that maximum.
    pub fn new(permits: usize) -> Self {
        Self(BatchSemaphore::new(permits.min(PERMITS_MAX)))
    }

    /// Waits until `permits` permits are free, and takes them.
    ///
    /// Permits are granted in the order of the calls, so a later caller waits even if it wants
    /// fewer permits. A call for more permits than there will ever be waits forever.
    ///
    /// # Errors
    /// [`AcquireError::Closed`]: the semaphore is or becomes closed.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has taken no permits.
    #[doc(alias = "acquire_many")]
    #[track_caller]
    pub fn acquire(
        &self,
        permits: usize,
    ) -> impl Future<Output = Result<Permits<'_>, AcquireError>> {
        crate::scheduler::placed::placed(async move {
            match Acquire::new(&self.0, permits).await {
                true => Ok(Permits { semaphore: self, permits }),
                false => Err(AcquireError::Closed),
            }
        })
    }

    /// Takes permits without waiting.
    ///
    /// # Errors
    /// [`AcquireError::WouldBlock`]: fewer permits are free, or others wait for permits.
    /// [`AcquireError::Closed`]: the semaphore is closed.
    pub fn try_acquire(&self, permits: usize) -> Result<Permits<'_>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.0, permits, Holder::UNKNOWN)
            .map(|()| Permits { semaphore: self, permits })
    }

    /// Like [`acquire`](Self::acquire), but waits for at most `timeout`.
    ///
    /// # Errors
    /// [`AcquireError::Elapsed`]: the timeout elapses first. [`AcquireError::Closed`]: the
    /// semaphore is or becomes closed.
    #[track_caller]
    pub fn acquire_timeout(
        &self,
        permits: usize,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permits<'_>, AcquireError>> {
        crate::scheduler::placed::placed(async move {
            time::timeout(timeout, self.acquire(permits)).await?
        })
    }

    /// Takes permits like [`acquire`](Self::acquire), and returns permits that keep the semaphore
    /// alive. They can be moved into another process.
    ///
    /// # Errors
    /// Like [`acquire`](Self::acquire).
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has taken no permits.
    #[doc(alias = "acquire_many_owned")]
    #[track_caller]
    pub fn acquire_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> impl Future<Output = Result<OwnedPermits, AcquireError>> {
        crate::scheduler::placed::placed(async move {
            match Acquire::new(&self.0, permits).await {
                true => Ok(OwnedPermits { semaphore: self, permits }),
                false => Err(AcquireError::Closed),
            }
        })
    }

    /// Takes permits like [`try_acquire`](Self::try_acquire), and returns permits that keep the
    /// semaphore alive.
    ///
    /// # Errors
    /// Like [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedPermits, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.0, permits, Holder::UNKNOWN)
            .map(|()| OwnedPermits { semaphore: self, permits })
    }

    /// Like [`acquire_owned`](Self::acquire_owned), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Like [`acquire_timeout`](Self::acquire_timeout).
    #[track_caller]
    pub fn acquire_owned_timeout(
        self: Arc<Self>,
        permits: usize,
        timeout: Duration,
    ) -> impl Future<Output = Result<OwnedPermits, AcquireError>> {
        crate::scheduler::placed::placed(async move {
            time::timeout(timeout, self.acquire_owned(permits)).await?
        })
    }

    /// Adds permits. At most `usize::MAX / 8` permits are free at a time; the rest is dropped.
    pub fn add_permits(&self, permits: usize) {
        self.0.release(permits).wake();
    }

    /// Returns the number of free permits.
    pub fn available_permits(&self) -> usize {
        self.0.free()
    }

    /// Closes the semaphore. From now on no permits are granted, neither to waiters nor to later
    /// callers. Permits that are already taken stay valid.
    pub fn close(&self) {
        self.0.close().wake();
    }

    /// Returns `true` if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available_permits()).finish()
    }
}

/// Permits of a [`Semaphore`]. Dropping this value returns them to the semaphore.
#[must_use = "dropped permits are given back"]
pub struct Permits<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl Permits<'_> {
    /// Returns the number of permits.
    pub fn count(&self) -> usize {
        self.permits
    }

    /// Removes the permits from the semaphore for good.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Moves `permits` of these permits into a separate value. Returns `None` and changes nothing
    /// if there are fewer.
    pub fn split(&mut self, permits: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(permits)?;
        Some(Self { semaphore: self.semaphore, permits })
    }

    /// Adds the permits of `other` to these.
    ///
    /// # Panics
    /// Panics if `other` has permits of another semaphore.
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            std::ptr::eq(self.semaphore, other.semaphore),
            "cannot merge permits of two semaphores"
        );
        // A sum that does not fit into a `usize` is also more than the semaphore takes back.
        self.permits = self.permits.saturating_add(std::mem::take(&mut other.permits));
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

/// Permits of a [`Semaphore`] that keep it alive, made by [`Semaphore::acquire_owned`]. Dropping
/// this value returns them to the semaphore.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::Semaphore;
///
/// procession::run(async {
///     let connections = Arc::new(Semaphore::new(2));
///     let permits = connections.clone().acquire_owned(2).await.expect("it is not closed");
///     let serves = procession::spawn(async move { permits.count() });
///     assert_eq!(serves.await?, 2);
///     // The process has ended, and given them back.
///     assert_eq!(connections.available_permits(), 2);
///     Ok::<(), procession::Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
#[must_use = "dropped permits are given back"]
pub struct OwnedPermits {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedPermits {
    /// Returns the number of permits.
    pub fn count(&self) -> usize {
        self.permits
    }

    /// Removes the permits from the semaphore for good.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Moves `permits` of these permits into a separate value. Returns `None` and changes nothing
    /// if there are fewer.
    pub fn split(&mut self, permits: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(permits)?;
        Some(Self { semaphore: Arc::clone(&self.semaphore), permits })
    }

    /// Adds the permits of `other` to these.
    ///
    /// # Panics
    /// Panics if `other` has permits of another semaphore.
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            Arc::ptr_eq(&self.semaphore, &other.semaphore),
            "cannot merge permits of two semaphores"
        );
        // A sum that does not fit into a `usize` is also more than the semaphore takes back.
        self.permits = self.permits.saturating_add(std::mem::take(&mut other.permits));
    }
}

impl Drop for OwnedPermits {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.0.release(self.permits).wake();
        }
    }
}

impl fmt::Debug for OwnedPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedPermits").field(&self.permits).finish()
    }
}
