//! The values that the running process passes on to the processes that it spawns, or a thread that
//! runs no process.
//!
//! ## User code
//! The `Drop` of a value is code of the user. It runs outside of the locks, guarded if the runtime
//! drops the last reference: `replace` returns what was there before, and [`Within`] drops it.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::process::handling::Handling;
use crate::process::inherited::Inherited;
use crate::process::slot::{Slot, SlotRef};
use crate::process::unwind::drop_guarded;
use crate::scheduler::current::{self, Hold, with_local};
use crate::scheduler::frame::drive_depth;
use crate::scheduler::local::LocalWorker;

thread_local! {
    /// The values of a thread that runs no process.
    static OUTSIDE: RefCell<OutsideValues> = const { RefCell::new((0, None)) };
}

/// Values, and the depth of the schedulers that the thread drives at which they are visible. What a
/// thread runs in a drive, for example the function of a timer, is no part of what it ran before.
type OutsideValues = (u32, Option<Inherited>);

/// Returns the values that a process inherits which is spawned here.
#[inline]
pub(crate) fn present_in(hold: &Hold) -> Option<Inherited> {
    match hold.local() {
        Some(local) => of_worker(local),
        None => present(),
    }
}

/// Returns the values that are inherited from here.
pub(crate) fn present() -> Option<Inherited> {
    with_local(|local| local.map_or_else(outside, of_worker))
}

#[inline]
fn of_worker(local: &LocalWorker) -> Option<Inherited> {
    local.step.inherited().unwrap_or_else(outside)
}

fn outside() -> Option<Inherited> {
    let visible = |outside: &RefCell<OutsideValues>| match &*outside.borrow() {
        (depth, Some(values)) if *depth == drive_depth() => Some(values.clone()),
        _ => None,
    };
    // `Err` if the thread ends.
    OUTSIDE.try_with(visible).ok().flatten()
}

/// Replaces the values of a process, or of this thread.
fn replace(process: Option<&Slot>, values: OutsideValues) -> OutsideValues {
    match process {
        Some(slot) => {
            let (depth, values) = values;
            let swap = |handling: &mut Handling| mem::replace(&mut handling.inherited, values);
            (depth, slot.extra_or_default().handling(swap))
        }
        None => OUTSIDE.try_with(|place| place.replace(values)).unwrap_or_default(),
    }
}

/// The time in which other values are inherited from here. Dropping it ends the time.
#[must_use]
pub(crate) struct Within {
    process: Option<SlotRef>,
    before: OutsideValues,
}

impl Within {
    pub(crate) fn enter(values: Option<Inherited>) -> Self {
        let process = current::current();
        let before = replace(process.as_deref(), (drive_depth(), values));
        Self { process, before }
    }

    /// Enters unless there are no values, neither these nor here.
    pub(crate) fn enter_any(values: Option<Inherited>) -> Option<Self> {
        (values.is_some() || present().is_some()).then(|| Self::enter(values))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let before = mem::take(&mut self.before);
        drop_guarded(replace(self.process.as_deref(), before));
    }
}

pin_project! {
    /// A future. What its polls spawn inherits these values.
    pub(crate) struct Inheriting<F> {
        values: Option<Inherited>,
        #[pin]
        future: F,
    }
}

impl<F> Inheriting<F> {
    pub(crate) fn new(values: Option<Inherited>, future: F) -> Self {
        Self { values, future }
    }

    /// Returns the future, which was not polled yet.
    pub(crate) fn into_future(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Inheriting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _within = Within::enter_any(this.values.clone());
        this.future.poll(task)
    }
}
