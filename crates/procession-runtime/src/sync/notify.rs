//! Notifications of waiters.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::notify::core::{NotifyCore, Release};
use procession_protocols::sync::wait_list::{Another, Place};

use crate::process::served::{TaskWaker, WakeServed, wake};
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::charge_after;
use crate::scheduler::current;

/// Notifies one waiter or all waiters. It carries no data.
///
/// If nobody waits, a notification of one waiter is not lost: it is stored as a *permit* for the
/// next waiter. At most one permit is stored. A notification of all waiters is not stored.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::Notify;
///
/// procession::run(async {
///     let notify = Arc::new(Notify::new());
///     let waits = procession::spawn({
///         let notify = notify.clone();
///         async move { notify.notified().await }
///     });
///     // Reaches the process, whether it waits already or not.
///     notify.notify_one();
///     waits.await
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// To wait for a condition of other data, make the waiter first and check the condition second. The
/// waiter then gets each later [`notify_waiters`](Self::notify_waiters), even before its first
/// poll. If there are other waiters, and this waiter must also get the calls of
/// [`notify_one`](Self::notify_one), [enable](Notified::enable) it before the check:
///
/// ```
/// use std::pin::pin;
/// use procession::sync::Notify;
/// # use procession_sync::atomic::{AtomicBool, Ordering::SeqCst};
///
/// async fn wait_until_set(flag: &AtomicBool, notify: &Notify) {
///     loop {
///         let mut notified = pin!(notify.notified());
///         notified.as_mut().enable();
///         if flag.load(SeqCst) {
///             return;
///         }
///         notified.await;
///     }
/// }
/// # let (flag, notify) = (AtomicBool::new(false), Notify::new());
/// # std::thread::scope(|scope| {
/// #     scope.spawn(|| { flag.store(true, SeqCst); notify.notify_one(); });
/// #     procession::run(wait_until_set(&flag, &notify));
/// # });
/// ```
#[derive(Debug)]
pub struct Notify(NotifyCore);

impl Notify {
    /// Creates a `Notify` without a permit.
    pub fn new() -> Self {
        Self(NotifyCore::new())
    }

    /// Returns a future that waits for a notification.
    ///
    /// It completes if there is a permit, and takes it; if [`notify_one`](Self::notify_one) or
    /// [`notify_last`](Self::notify_last) chooses it while it waits; or if
    /// [`notify_waiters`](Self::notify_waiters) is called at any time after this call.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, its place among the waiters is lost. A
    /// notification that was for it alone goes to the next waiter, or becomes a permit.
    #[track_caller]
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, wait: NotifyWait::new(&self.0) }
    }

    /// Returns a future like [`notified`](Self::notified) does, which keeps the `Notify` alive.
    #[track_caller]
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        OwnedNotified { wait: NotifyWait::new(&self.0), notify: self }
    }

    /// Notifies the waiter that has waited longest. If none waits, stores a permit, unless there is
    /// one already.
    pub fn notify_one(&self) {
        crate::scheduler::budget::spend();
        wake(self.0.notify(Release::First));
    }

    /// Notifies like [`notify_one`](Self::notify_one), but chooses the most recent waiter.
    pub fn notify_last(&self) {
        crate::scheduler::budget::spend();
        wake(self.0.notify(Release::Last));
    }

    /// Notifies all waiters, including futures that were made before this call and have not been
    /// polled. Stores no permit.
    pub fn notify_waiters(&self) {
        crate::scheduler::budget::spend();
        self.0.notify_all().wake();
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

/// The wait of one future.
#[derive(Debug)]
struct NotifyWait {
    /// The round in which the waiter was made.
    round: u64,
    place: Option<Place>,
    /// How the waiter was notified; `All` once the future was complete, because nothing is passed
    /// on then.
    notice: Option<Release>,
    /// The call that made the future.
    call: &'static Location<'static>,
}

impl NotifyWait {
    #[track_caller]
    fn new(core: &NotifyCore) -> Self {
        Self { round: core.round(), place: None, notice: None, call: Location::caller() }
    }

    fn poll(&mut self, core: &NotifyCore, task: &TaskContext<'_>) -> Poll<()> {
        if self.notice.is_none() {
            let another = &mut TaskWaker::of(task.waker());
            self.notice = match self.place {
                Some(_) => core.look(&mut self.place, another),
                None => core.take_or_wait(self.round, &mut self.place, another),
            };
        }
        let notified = if self.notice.is_some() {
            Poll::Ready(())
        } else {
            current::note_waiting_for_some(Waiting::LOCK);
            current::note_place(self.call);
            Poll::Pending
        };
        let notified = charge_after(task, notified, |()| {});
        if notified.is_ready() {
            self.notice = Some(Release::All);
        }
        notified
    }

    fn enable(&mut self, core: &NotifyCore) -> bool {
        if self.notice.is_none() {
            self.notice = match self.place {
                Some(_) => core.try_look(&mut self.place),
                None => core.take_or_wait(self.round, &mut self.place, &mut Another::none()),
            };
        }
        self.notice.is_some()
    }

    fn cancel(&mut self, core: &NotifyCore) {
        if let Some(place) = self.place.take() {
            let (own, next) = core.cancel(place);
            drop_guarded(own);
            wake(next);
        }
        if let Some(notice) = self.notice.take() {
            wake(core.pass_on(notice));
        }
    }
}

/// The future of [`Notify::notified`].
///
/// Polling it again after completion completes again.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    wait: NotifyWait,
}

impl Notified<'_> {
    /// Takes a place among the waiters before the first poll, so that
    /// [`notify_one`](Notify::notify_one) can choose this future. Returns `true` if it is notified
    /// already. A permit is then taken, and awaiting the future does not wait.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        let notified = self.get_mut();
        notified.wait.enable(&notified.notify.0)
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let notified = self.get_mut();
        notified.wait.poll(&notified.notify.0, task)
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        self.wait.cancel(&self.notify.0);
    }
}

/// The future of [`Notify::notified_owned`].
///
/// Polling it again after completion completes again.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct OwnedNotified {
    notify: Arc<Notify>,
    wait: NotifyWait,
}

impl OwnedNotified {
    /// Takes a place among the waiters before the first poll; see [`Notified::enable`].
    pub fn enable(self: Pin<&mut Self>) -> bool {
        let notified = self.get_mut();
        notified.wait.enable(&notified.notify.0)
    }
}

impl Future for OwnedNotified {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let notified = self.get_mut();
        notified.wait.poll(&notified.notify.0, task)
    }
}

impl Drop for OwnedNotified {
    fn drop(&mut self) {
        self.wait.cancel(&self.notify.0);
    }
}
