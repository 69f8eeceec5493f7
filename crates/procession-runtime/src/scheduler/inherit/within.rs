//! The times in which other values are inherited from here.
//!
//! ## User code
//! The `Drop` of a value is code of the user. It runs outside of the locks, because `replace`
//! returns what was there before, and [`Within`] drops it. Each value is guarded by itself.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::process::handling::Inherited;
use crate::process::slot::SlotRef;
use crate::scheduler::current::{self, drive_depth};
use crate::scheduler::inherit::{OutsideValues, present, replace};

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
        drop(replace(self.process.as_deref(), before));
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
