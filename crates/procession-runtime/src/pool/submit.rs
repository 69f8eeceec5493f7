//! The ways of a job into a pool: at once, after a wait for a place, or in its submitter.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::lane::JobLane;
use procession_protocols::pool::state::outcome::{Admission, EnterError, Verdict};
use procession_protocols::sync::wait_list::Place;

use super::block::block;
use super::builder::OnFull;
use super::engine::Inner;
use super::error::{SubmitError, SubmitErrorKind};
use crate::process::served::TaskWaker;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::{charge_act, charge_after};
use crate::scheduler::current;
use crate::time;

/// The policy of one submit call for a full pool.
#[derive(Clone, Copy, Debug)]
pub(super) enum FullPolicy {
    Refuse,
    Wait(Option<Duration>),
    RunHere,
}

impl FullPolicy {
    fn for_lane(self, lane: JobLane) -> Self {
        match self {
            Self::RunHere if lane.key.is_some() => Self::Wait(None),
            policy => policy,
        }
    }
}

impl From<OnFull> for FullPolicy {
    fn from(on_full: OnFull) -> Self {
        match on_full {
            OnFull::Wait => Self::Wait(None),
            OnFull::Refuse => Self::Refuse,
            OnFull::CallerRuns => Self::RunHere,
        }
    }
}

impl From<EnterError> for SubmitErrorKind {
    fn from(error: EnterError) -> Self {
        match error {
            EnterError::Full => Self::Full,
            EnterError::Closed => Self::Closed,
            EnterError::WouldDeadlock => Self::WouldDeadlock,
            EnterError::Worker(error) => Self::Worker(error),
        }
    }
}

fn submit_error<C>((content, error): (C, EnterError)) -> SubmitError<C> {
    SubmitError::new(content, error.into())
}

impl<J> Inner<J> {
    pub(super) fn release(&self, generation: u64) {
        self.woken(((), self.core.release(generation)));
    }

    pub(super) fn try_reserve(&self) -> Result<u64, SubmitErrorKind> {
        self.core.try_reserve().map_err(|error| {
            self.core.count_refused();
            error.into()
        })
    }
    pub(super) fn enter<C>(
        self: &Arc<Self>,
        lane: JobLane,
        content: C,
        make: impl FnOnce(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        self.step(|core, start| core.enter(lane, content, make, start)).map_err(submit_error)
    }

    /// Enters a job into a reserved place.
    pub(super) fn enter_reserved<C>(
        self: &Arc<Self>,
        generation: u64,
        lane: JobLane,
        content: C,
        make: impl FnOnce(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        self.step(|core, start| core.enter_reserved(generation, lane, content, make, start))
            .map_err(submit_error)
    }

    /// Counts a refusal that the protocol has not counted.
    pub(super) fn count_if_refused<C>(&self, entered: &Result<u64, SubmitError<C>>) {
        if entered.as_ref().is_err_and(|error| !error.is_no_worker()) {
            self.core.count_refused();
        }
    }
}

impl<J: Send + 'static> Inner<J> {
    pub(super) fn place(self: &Arc<Self>, timed: bool) -> PlaceWait<'_, J> {
        PlaceWait { inner: self, place: None, kept: None, timed }
    }

    /// Enters a job. If the pool is full, waits on this thread, refuses, or runs the job here. A
    /// job with a key is not run here, because an earlier one of its key may not have ended.
    pub(super) fn put<C>(
        self: &Arc<Self>,
        lane: JobLane,
        content: C,
        policy: FullPolicy,
        mut make: impl FnMut(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        let entered = match self.enter(lane, content, &mut make).map_err(SubmitError::into_parts) {
            Err((content, SubmitErrorKind::Full)) => match policy.for_lane(lane) {
                FullPolicy::Refuse => Err(SubmitError::new(content, SubmitErrorKind::Full)),
                FullPolicy::Wait(timeout) => {
                    let mut place = self.place(timeout.is_some());
                    match block(timeout, |task| place.poll_place(task))
                        .unwrap_or(Err(SubmitErrorKind::TimedOut))
                    {
                        Ok(generation) => self.enter_reserved(generation, lane, content, make),
                        Err(kind) => Err(SubmitError::new(content, kind)),
                    }
                }
                FullPolicy::RunHere => match self.core.begin_inline() {
                    Some(ticket) => {
                        let job = make(content);
                        self.run_inline(ticket, job);
                        Ok(ticket)
                    }
                    None => Err(SubmitError::new(content, SubmitErrorKind::Closed)),
                },
            },
            entered => entered.map_err(|(content, kind)| SubmitError::new(content, kind)),
        };
        self.count_if_refused(&entered);
        entered
    }

    /// Enters a job. If the pool is full, waits as async code does, or refuses.
    pub(super) async fn put_async<C>(
        self: &Arc<Self>,
        lane: JobLane,
        content: C,
        policy: FullPolicy,
        mut make: impl FnMut(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        let timeout = match policy {
            FullPolicy::Refuse => {
                poll_fn(|task| if charge_act(task) { Poll::Ready(()) } else { Poll::Pending })
                    .await;
                return self.put_now(lane, content, make);
            }
            FullPolicy::Wait(timeout) => timeout,
            // An async submitter cannot run the job: only a worker of the pool polls it.
            FullPolicy::RunHere => None,
        };
        let mut place = self.place(timeout.is_some());
        let mut content = Some(content);
        let entering = poll_fn(|task| {
            let may_act = charge_act(task) || place.is_enlisted();
            if !may_act && !self.core.must_wait() {
                return Poll::Pending;
            }
            let entered = place.poll_enter(task, lane, &mut content, &mut make);
            // An answer without a job is the same in the next step.
            if may_act || content.is_none() { entered } else { Poll::Pending }
        });
        let entered = match timeout {
            Some(timeout) => time::timeout(timeout, entering).await,
            None => Ok(entering.await),
        };
        let entered = entered.unwrap_or(Err(SubmitErrorKind::TimedOut));
        drop(place);
        let entered = entered.map_err(|kind| {
            let content = content.take().expect("a job that was not taken is still here");
            SubmitError::new(content, kind)
        });
        self.count_if_refused(&entered);
        entered
    }

    /// Enters a job if there is a place.
    pub(super) fn put_now<C>(
        self: &Arc<Self>,
        lane: JobLane,
        content: C,
        make: impl FnOnce(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        let entered = self.enter(lane, content, make);
        self.count_if_refused(&entered);
        entered
    }
}

/// A reserved place in a pool. Dropping it gives the place back.
pub(super) struct ReservedPlace<'a, J> {
    inner: &'a Arc<Inner<J>>,
    generation: Option<u64>,
}

impl<'a, J> ReservedPlace<'a, J> {
    pub(super) fn new(inner: &'a Arc<Inner<J>>, generation: u64) -> Self {
        Self { inner, generation: Some(generation) }
    }

    /// Enters a job into the place.
    pub(super) fn enter<B>(
        mut self,
        lane: JobLane,
        boxed: B,
        make: impl FnOnce(B) -> J,
    ) -> Result<u64, SubmitError<B>> {
        let generation = self.generation.take().expect("a place is used once");
        let entered = self.inner.enter_reserved(generation, lane, boxed, make);
        self.inner.count_if_refused(&entered);
        entered
    }
}

impl<J> Drop for ReservedPlace<'_, J> {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.inner.release(generation);
        }
    }
}

/// Waits for a place in a pool, which is then reserved. Dropping it gives the place back.
pub(super) struct PlaceWait<'a, J: Send + 'static> {
    inner: &'a Arc<Inner<J>>,
    place: Option<Place>,
    /// The result, while it is kept over the end of a step.
    kept: Option<Result<u64, SubmitErrorKind>>,
    /// `true` if the wait has a timeout.
    timed: bool,
}

impl<J: Send + 'static> PlaceWait<'_, J> {
    fn poll_place(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<u64, SubmitErrorKind>> {
        let mut another = TaskWaker::of(task.waker());
        another.prepare();
        if self.place.is_some() {
            return match self.inner.core.poll_wait(&mut self.place, &mut another) {
                Some(Verdict::Granted(generation)) => Poll::Ready(Ok(generation)),
                Some(Verdict::Closed) => Poll::Ready(Err(SubmitErrorKind::Closed)),
                Some(Verdict::WouldDeadlock) => Poll::Ready(Err(SubmitErrorKind::WouldDeadlock)),
                None => Poll::Pending,
            };
        }
        match self.inner.core.wait(&mut another, self.own_worker()) {
            Admission::Granted(generation) => Poll::Ready(Ok(generation)),
            entry => self.note(entry).map(Err),
        }
    }

    /// Returns the worker of the waiting job, if the wait has no timeout.
    fn own_worker(&self) -> Option<Busy> {
        if self.timed { None } else { self.inner.own_worker() }
    }

    /// Stores the place in the list of a waiter, or returns why it does not wait.
    fn note(&mut self, entry: Admission) -> Poll<SubmitErrorKind> {
        Poll::Ready(match entry {
            Admission::Waits(place) => {
                self.place = Some(place);
                return Poll::Pending;
            }
            Admission::Closed => SubmitErrorKind::Closed,
            Admission::TooManyWaiting => SubmitErrorKind::TooManyWaiting,
            Admission::WouldDeadlock => SubmitErrorKind::WouldDeadlock,
            Admission::Granted(_) | Admission::Taken(_) => {
                unreachable!("the caller has matched it")
            }
        })
    }

    /// Enters a job as soon as there is a place, and returns its ticket. Takes the content only if
    /// it takes the job.
    fn poll_enter<C>(
        &mut self,
        task: &mut TaskContext<'_>,
        lane: JobLane,
        content: &mut Option<C>,
        make: &mut impl FnMut(C) -> J,
    ) -> Poll<Result<u64, SubmitErrorKind>> {
        let inner = self.inner;
        let mut another = TaskWaker::of(task.waker());
        another.prepare();
        let polled = if self.place.is_some() {
            let place = &mut self.place;
            match inner.step(|core, start| {
                core.enter_served(place, lane, content, make, start, &mut another)
            }) {
                Some(entered) => Poll::Ready(entered.map_err(Into::into)),
                None => Poll::Pending,
            }
        } else {
            let own = self.own_worker();
            match inner.step(|core, start| {
                core.enter_or_wait(lane, content, make, start, &mut another, own)
            }) {
                Ok(Admission::Taken(ticket)) => Poll::Ready(Ok(ticket)),
                Ok(entry) => self.note(entry).map(Err),
                Err(error) => Poll::Ready(Err(error.into())),
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
    type Output = Result<u64, SubmitErrorKind>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let wait = self.get_mut();
        let polled = match wait.kept.take() {
            Some(reserved) => Poll::Ready(reserved),
            None => wait.poll_place(task),
        };
        if polled.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        charge_after(task, polled, |reserved| wait.kept = Some(reserved))
    }
}

impl<J: Send + 'static> Drop for PlaceWait<'_, J> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.inner.woken(((), self.inner.core.leave_wait(place)));
        }
        if let Some(Ok(generation)) = self.kept.take() {
            self.inner.release(generation);
        }
    }
}
