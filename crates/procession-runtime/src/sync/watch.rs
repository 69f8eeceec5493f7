//! A value that many watch: receivers see the latest value, and can wait for the next change.
//!
//! Only the latest value is kept. A receiver that is slow misses the values in between, and never
//! the last value. For every value, use a [`broadcast`](crate::sync::broadcast) channel.
//!
//! ```
//! use procession::sync::watch;
//!
//! procession::run(async {
//!     let (sender, mut receiver) = watch::channel("starting");
//!     let process = procession::spawn(async move {
//!         while *receiver.borrow_and_update() != "stopping" {
//!             receiver.changed().await?;
//!         }
//!         Ok::<_, procession::sync::RecvError>(())
//!     });
//!     sender.send("running")?;
//!     sender.send("stopping")?;
//!     assert_eq!(process.await, Ok(Ok(())));
//!     Ok::<_, procession::sync::SendError<&str>>(())
//! })?;
//! # Ok::<(), procession::sync::SendError<&str>>(())
//! ```
//!
//! # Blocking
//!
//! The value is behind a reader-writer lock of the standard library. A [`Ref`] blocks the thread of
//! a sender that changes the value, and a sender that changes the value blocks readers. So keep
//! each `Ref` short, and do not change the value while this thread holds a `Ref`, because the
//! change would wait forever. A `Ref` cannot be held across an `.await` in a process that moves
//! between threads.
//!
//! Do not hold two `Ref`s of one watch at a time on one thread either, because readers wait behind
//! a sender that waits. To compare two values, copy the first value. This is a deadlock:
//!
//! ```text
//! one thread                       another thread
//! let old = receiver.borrow();
//!                                  sender.send(2);   // waits for the end of `old`
//! let new = receiver.borrow();     // waits for the sender
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::bell::Bell;
use procession_protocols::sync::end_count::EndCount;
use procession_protocols::sync::wait_list::Place;
use procession_protocols::sync::watch::core::{Version, WatchCore};
use procession_sync::RwLockReadGuard;

use crate::process::served::WakeServed;
use crate::scheduler::budget::in_turn;
use crate::scheduler::listener::{BellWait, leave, look_or_wait};
use crate::sync::error::SendError;
use crate::util::recv_error::RecvError;

struct WatchChannel<T> {
    core: WatchCore<T>,
    senders: EndCount,
    /// The number of receivers. Rings when it becomes zero.
    receivers: Bell<usize>,
}

impl<T> WatchChannel<T> {
    fn new(value: T, receivers: usize) -> Arc<Self> {
        Arc::new(Self {
            core: WatchCore::new(value),
            senders: EndCount::new(1),
            receivers: Bell::new(receivers),
        })
    }

    fn receivers(&self) -> usize {
        self.receivers.change(|ringing| ringing.about)
    }

    /// Returns a receiver that has seen `seen`.
    fn receiver(self: &Arc<Self>, seen: Version) -> Receiver<T> {
        self.receivers.change(|ringing| ringing.about += 1);
        Receiver { watched: Arc::clone(self), seen, place: None }
    }

    fn borrow(&self, seen: Version) -> (Ref<'_, T>, Version) {
        let (value, version) = self.core.read();
        (Ref { value, has_changed: !version.is_same_value(seen) }, version)
    }
}

/// Creates a watch with its first value. The receiver has seen that value.
///
/// ```
/// use procession::sync::watch;
///
/// procession::run(async {
///     let (level, mut seen) = watch::channel("info");
///     let logger = procession::spawn(async move {
///         while seen.changed().await.is_ok() {
///             let level = *seen.borrow_and_update();
///             if level == "debug" {
///                 return level;
///             }
///         }
///         "no debug"
///     });
///     level.send("warn").expect("the logger listens");
///     level.send("debug").expect("the logger listens");
///     assert_eq!(logger.await, Ok("debug"));
/// });
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let watched = WatchChannel::new(value, 1);
    (
        Sender { watched: Arc::clone(&watched) },
        Receiver { watched, seen: Version::FIRST, place: None },
    )
}

/// The side of a watch that changes the value.
///
/// Clones change the same value. Once all clones are dropped, receivers see the last value, and
/// waiting for a change fails.
pub struct Sender<T> {
    watched: Arc<WatchChannel<T>>,
}

impl<T> Sender<T> {
    /// Creates a watch without a receiver. [`subscribe`](Self::subscribe) adds receivers.
    pub fn new(value: T) -> Self {
        Self { watched: WatchChannel::new(value, 0) }
    }

    /// Sets the value, and wakes all waiting receivers.
    ///
    /// # Errors
    /// If there is no receiver, returns [`SendError`] with the new value, and keeps the present
    /// value. Use [`send_replace`](Self::send_replace) to set the value in any case.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receiver_count() == 0 {
            return Err(SendError::Closed(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Sets the value, even if there is no receiver, and returns the earlier value.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|present| std::mem::swap(present, &mut value));
        value
    }

    /// Changes the value in place, even if there is no receiver, and wakes all waiting receivers.
    ///
    /// # Blocking
    /// `modify` runs under the lock of the value, so it must not use this watch.
    ///
    /// # Panics
    /// Panics if `modify` panics. The value is then as `modify` left it, and no receiver is
    /// notified.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value like [`send_modify`](Self::send_modify), and wakes the waiting receivers
    /// only if `modify` returns `true`. Returns the result of `modify`.
    ///
    /// ```
    /// use procession::sync::watch;
    ///
    /// let (sender, receiver) = watch::channel(5);
    /// let raise = |to| sender.send_if_modified(|value| *value < to && { *value = to; true });
    /// assert!(!raise(4));
    /// assert_eq!(receiver.has_changed(), Ok(false));
    /// assert!(raise(6));
    /// assert_eq!(receiver.has_changed(), Ok(true));
    /// ```
    ///
    /// # Panics
    /// Panics if `modify` panics. The value is then as `modify` left it, and no receiver is
    /// notified.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        crate::scheduler::budget::spend();
        let woken = self.watched.core.change(modify);
        let is_modified = woken.is_some();
        if let Some(woken) = woken {
            woken.wake();
        }
        is_modified
    }

    /// Returns a reference to the value. Hold no other `Ref` of this watch; see *Blocking* in the
    /// [module](self).
    pub fn borrow(&self) -> Ref<'_, T> {
        let seen = self.watched.core.version();
        let (mut value, _) = self.watched.borrow(seen);
        // For its senders, no value is new.
        value.has_changed = false;
        value
    }

    /// Waits until there is no receiver. Completes immediately if there is none.
    ///
    /// # Cancellation
    /// If the future is dropped, the wait ends without an effect.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            let mut wait = BellWait::new(&self.watched.receivers);
            in_turn(|task| wait.poll(task, |&mut receivers| (receivers == 0).then_some(()))).await;
        })
    }

    /// Returns `true` if there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Returns a new receiver, which has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.watched.receiver(self.watched.core.version())
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.watched.receivers()
    }

    /// Returns the number of senders.
    pub fn sender_count(&self) -> usize {
        self.watched.senders.count()
    }

    /// Returns `true` for senders of the same watch.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.watched, &other.watched)
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.watched.senders.add();
        Self { watched: Arc::clone(&self.watched) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.watched.senders.remove() {
            self.watched.core.close().wake();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("receivers", &self.receiver_count()).finish_non_exhaustive()
    }
}

/// The side of a watch that sees the value.
///
/// Each receiver marks the value that it has seen last. A clone has seen the same value.
pub struct Receiver<T> {
    watched: Arc<WatchChannel<T>>,
    seen: Version,
    /// Present after a wait.
    place: Option<Place>,
}

impl<T> Receiver<T> {
    /// Returns a reference to the value, without marking it as seen. Hold no other `Ref` of this
    /// watch; see *Blocking* in the [module](self).
    pub fn borrow(&self) -> Ref<'_, T> {
        self.watched.borrow(self.seen).0
    }

    /// Returns a reference to the value, and marks it as seen. Hold no other `Ref` of this watch;
    /// see *Blocking* in the [module](self).
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let (value, version) = self.watched.borrow(self.seen);
        self.seen = version;
        value
    }

    /// Returns `true` if the value has changed since this receiver has seen it.
    ///
    /// # Errors
    /// Returns [`RecvError`] if all senders are dropped, even if the last value was not seen.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let version = self.watched.core.version();
        if version.is_closed() {
            Err(RecvError::Closed)
        } else {
            Ok(!version.is_same_value(self.seen))
        }
    }

    /// Returns `true` if all senders are dropped.
    pub fn is_closed(&self) -> bool {
        self.watched.core.version().is_closed()
    }

    /// Marks the value as not seen, so that the next [`changed`](Self::changed) returns
    /// immediately.
    pub fn mark_changed(&mut self) {
        self.seen = self.watched.core.version().before();
    }

    /// Marks the value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.watched.core.version();
    }

    /// Waits until the value has changed since this receiver has seen it, and marks it as seen.
    ///
    /// # Errors
    /// Returns [`RecvError`] if the value was seen and all senders are dropped.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, nothing is marked.
    #[track_caller]
    pub fn changed(&mut self) -> impl Future<Output = Result<(), RecvError>> {
        crate::scheduler::placed::placed(async move { self.change_wait().changed().await })
    }

    fn change_wait(&mut self) -> ChangeWait<'_, T> {
        let Self { watched, seen, place } = self;
        ChangeWait { watched, seen, place, is_pending: false }
    }

    /// Waits until `wanted` returns `true` for the value, and marks that value as seen. The present
    /// value is checked first.
    ///
    /// ```
    /// use procession::sync::watch;
    ///
    /// procession::run(async {
    ///     let (progress, mut receiver) = watch::channel(0);
    ///     procession::spawn(async move {
    ///         for percent in 1..=100 {
    ///             progress.send_replace(percent);
    ///             procession::yield_now().await;
    ///         }
    ///     });
    ///     let half = *receiver.wait_for(|percent| *percent >= 50).await?;
    ///     assert!(half >= 50);
    ///     Ok::<_, procession::sync::RecvError>(())
    /// })?;
    /// # Ok::<(), procession::sync::RecvError>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`RecvError`] if all senders are dropped and the last value is not wanted.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the values that `wanted` has seen are marked
    /// as seen.
    ///
    /// # Panics
    /// Panics if `wanted` panics. The watch stays usable.
    #[track_caller]
    pub fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> impl Future<Output = Result<Ref<'_, T>, RecvError>> {
        crate::scheduler::placed::placed(async move {
            let Self { watched, seen, place } = self;
            loop {
                {
                    let (value, version) = watched.borrow(*seen);
                    *seen = version;
                    if wanted(&value) {
                        return Ok(value);
                    }
                }
                // Only the borrow marks the value as seen, because the borrow reports whether the
                // value is new. So the wait gets a copy.
                let mut unmarked = *seen;
                let seen = &mut unmarked;
                ChangeWait { watched, seen, place, is_pending: false }.changed().await?;
            }
        })
    }

    /// Polls like [`changed`](Self::changed). While it is pending, this receiver stays enlisted.
    #[cfg(feature = "stream")]
    pub(crate) fn poll_changed(&mut self, task: &TaskContext<'_>) -> Poll<Result<(), RecvError>> {
        let mut wait = self.change_wait();
        let polled = wait.poll(task);
        wait.is_pending = false;
        polled
    }

    /// Returns `true` for receivers of the same watch.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.watched, &other.watched)
    }
}

/// A wait for a version other than `seen`, which is stored there.
///
/// If it is dropped while it is pending, it leaves the waiters. Otherwise its place stays with the
/// receiver, so that the next wait enters the lock of the bell only once.
struct ChangeWait<'a, T> {
    watched: &'a WatchChannel<T>,
    seen: &'a mut Version,
    place: &'a mut Option<Place>,
    is_pending: bool,
}

impl<T> ChangeWait<'_, T> {
    async fn changed(mut self) -> Result<(), RecvError> {
        poll_fn(|task| self.poll(task)).await
    }

    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<Result<(), RecvError>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Self { watched, seen, place, .. } = self;
        let version = watched.core.version();
        let news = if version.is_closed() || !version.is_same_value(**seen) {
            Poll::Ready(version)
        } else {
            look_or_wait(&watched.core.bell, place, task, |()| watched.core.news(**seen))
        };
        self.is_pending = news.is_pending();
        news.map(|version| note(self.seen, version))
    }
}

impl<T> Drop for ChangeWait<'_, T> {
    fn drop(&mut self) {
        if self.is_pending {
            leave(&self.watched.core.bell, self.place);
        }
    }
}

/// Stores a version with a value that `seen` does not have. Returns an error if the version differs
/// from `seen` only by being closed.
fn note(seen: &mut Version, version: Version) -> Result<(), RecvError> {
    if version.is_same_value(*seen) {
        return Err(RecvError::Closed);
    }
    *seen = version;
    Ok(())
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.watched.receiver(self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        leave(&self.watched.core.bell, &mut self.place);
        let woken = self.watched.receivers.ring_all_if(|receivers| {
            *receivers -= 1;
            *receivers == 0
        });
        woken.wake();
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("has_changed", &self.has_changed()).finish_non_exhaustive()
    }
}

/// A reference to the value of a watch. It locks the value for reading until it is dropped.
#[must_use = "a reference locks the value until it is dropped"]
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, T>,
    has_changed: bool,
}

impl<T> Ref<'_, T> {
    /// Returns `true` if the receiver had not seen this value before. Always `false` for the
    /// reference of a sender.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
