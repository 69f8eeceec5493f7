//! A wait at a bell.

use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::bell::{Bell, Notice};
use procession_protocols::sync::wait_list::Place;

use crate::process::served::{TaskWaker, wake};
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;

/// A waiter at a bell. If it is dropped after its release and before it is [done](Self::done), it
/// passes its notice on, provided that the notice may go to another waiter.
pub(crate) struct BellListener<'a, S = ()> {
    pub(crate) bell: &'a Bell<S>,
    pub(crate) place: Option<Place>,
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

    /// Begins to listen if `listens` returns `true`. Both happen in one critical section. `listens`
    /// is called again if the waker is user code.
    pub(crate) fn listen(
        &mut self,
        task: &TaskContext<'_>,
        mut listens: impl FnMut(&mut S) -> bool,
    ) -> bool {
        let mut another = TaskWaker::of(task.waker());
        loop {
            let waits = self.bell.change(|ringing| {
                if !listens(&mut ringing.about) {
                    return Some(None);
                }
                Some(Some(ringing.enlist(another.take()?)))
            });
            if let Some(place) = waits {
                self.place = place;
                return self.place.is_some();
            }
            another.prepare();
        }
    }

    /// Waits until the listener is released.
    pub(crate) fn poll(&mut self, task: &TaskContext<'_>) -> Poll<()> {
        if self.notice.is_none() {
            self.notice = self.bell.look(&mut self.place, &mut TaskWaker::of(task.waker()));
        }
        if self.notice.is_none() {
            current::note_waiting_for_some(Waiting::LOCK);
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

/// Looks for what a waiter waits for, at a bell that rings for all only. Pending if `look` finds
/// nothing; the waiter is then enlisted at `place`, and the caller notes the reason. `look` runs
/// under the lock of the bell.
pub(crate) fn look_or_enlist<S, R>(
    bell: &Bell<S>,
    place: &mut Option<Place>,
    task: &TaskContext<'_>,
    mut look: impl FnMut(&mut S) -> Option<R>,
) -> Poll<R> {
    let mut another = TaskWaker::of(task.waker());
    loop {
        match bell.change(|ringing| ringing.look_or_enlist(place, &mut another, &mut look)) {
            Some(Poll::Ready((found, own))) => {
                drop_guarded(own);
                return Poll::Ready(found);
            }
            Some(Poll::Pending) => return Poll::Pending,
            None => another.prepare(),
        }
    }
}

/// Like [`look_or_enlist`], for a wait for what a channel brings.
pub(crate) fn look_or_wait<S, R>(
    bell: &Bell<S>,
    place: &mut Option<Place>,
    task: &TaskContext<'_>,
    look: impl FnMut(&mut S) -> Option<R>,
) -> Poll<R> {
    let looked = look_or_enlist(bell, place, task, look);
    if looked.is_pending() {
        current::note_waiting(Waiting::CHANNEL);
    }
    looked
}

/// Ends the wait of [`look_or_enlist`].
pub(crate) fn leave<S>(bell: &Bell<S>, place: &mut Option<Place>) {
    if let Some(place) = place.take() {
        drop_guarded(bell.leave(place).err().flatten());
    }
}

/// A wait that ends when this is dropped, as [`look_or_wait`].
pub(crate) struct BellWait<'a, S> {
    bell: &'a Bell<S>,
    place: Option<Place>,
}

impl<'a, S> BellWait<'a, S> {
    pub(crate) fn new(bell: &'a Bell<S>) -> Self {
        Self { bell, place: None }
    }

    pub(crate) fn poll<R>(
        &mut self,
        task: &TaskContext<'_>,
        look: impl FnMut(&mut S) -> Option<R>,
    ) -> Poll<R> {
        look_or_wait(self.bell, &mut self.place, task, look)
    }
}

impl<S> Drop for BellWait<'_, S> {
    fn drop(&mut self) {
        leave(self.bell, &mut self.place);
    }
}
