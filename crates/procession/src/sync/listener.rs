//! A wait at a bell.

use std::task::{Context as TaskContext, Poll};

use crate::process::target::WaitTarget;
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::sync::bell::{Bell, Notice};
use crate::sync::wait_list::{Another, Place, wake};

/// A waiter at a bell. If it is dropped after its release and before it is [done](Self::done), it
/// passes its notice on, provided that the notice may go to another waiter.
pub(crate) struct BellListener<'a, S = ()> {
    pub(super) bell: &'a Bell<S>,
    pub(super) place: Option<Place>,
    notice: Option<Notice>,
}

impl<'a, S> BellListener<'a, S> {
    pub(crate) fn new(bell: &'a Bell<S>) -> Self {
        Self { bell, place: None, notice: None }
    }

    /// Returns `true` once it has begun to listen.
    pub(crate) fn listens(&self) -> bool {
        self.place.is_some() || self.notice.is_some()
    }

    /// Begins to listen if `listens` returns `true`. Both happen in one critical section.
    pub(crate) fn listen(
        &mut self,
        task: &TaskContext<'_>,
        listens: impl FnOnce(&mut S) -> bool,
    ) -> bool {
        // Cloned here, and dropped outside the lock if it is not needed, since it may be user code.
        let mut waker = Some(task.waker().clone());
        self.place = self.bell.change(|ringing| {
            let waker = listens(&mut ringing.about).then(|| waker.take()).flatten()?;
            Some(ringing.enlist(waker))
        });
        self.place.is_some()
    }

    /// Waits until the listener is released.
    pub(crate) fn poll(&mut self, task: &TaskContext<'_>) -> Poll<()> {
        if self.notice.is_none() {
            self.notice = self.bell.look(&mut self.place, &mut Another::of(task.waker()));
        }
        if self.notice.is_none() {
            current::note_waiting_for(Waiting::LOCK, WaitTarget::UNKNOWN);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Stops listening. Returns `true` if the listener was released before.
    pub(crate) fn leave(&mut self) -> bool {
        if let Some(place) = self.place.take() {
            match self.bell.leave(place) {
                Ok(notice) => self.notice = Some(notice),
                Err(own) => drop_guarded(own),
            }
        }
        self.notice.is_some()
    }

    /// Marks the notice as acted on, so that it is not passed on.
    pub(crate) fn done(&mut self) {
        self.notice = None;
    }
}

impl<S> Drop for BellListener<'_, S> {
    fn drop(&mut self) {
        self.leave();
        if let Some(notice) = self.notice.take() {
            wake(self.bell.pass_on(notice));
        }
    }
}
