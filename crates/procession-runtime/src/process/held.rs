//! Reports that wait until it is known whether the failure has reached somebody.
//!
//! # Held report protocol
//!
//! ## Problem
//! A failure that somebody learns of is not reported. But the process that fails cannot know that:
//! its handle may be dropped a moment later, and its monitor may be ended.
//!
//! ## States
//! The report of a process that may be heard is *held* in its slot, under a lock. It is `Unsettled`
//! until the end of the process has notified its monitors and links, and `Settled` from then on.
//! `HandleGone` is `Unsettled` without a handle.
//!
//! The report of a supervised process is *owed* by its supervisor instead (`report/owed.rs`), which
//! learns of the end and decides what to do.
//!
//! ## Steps
//! The end of the process:
//! - `Hold` the report, if the process has a handle, a monitor or a link to a process that traps
//!   exits. Otherwise the report is emitted now, before anybody can learn of the end.
//! - `Complete` and `Settle` of `relations/on_exit.rs`.
//! - `Decide`: if a monitor or a link was notified, drops the report. Otherwise, if the handle is
//!   gone, emits the report. Otherwise the report is `Settled`.
//!
//! The handle:
//! - `Take` the result: drops the report.
//! - `Leave`, if the handle is dropped after `Complete` and without the result: if the report is
//!   `Settled`, emits the report. If it is `Unsettled`, it becomes `HandleGone`.
//!
//! The supervisor `Takes` what is owed when it learns of an end. Its own end takes the rest.
//!
//! ## Why it works
//! `Hold` is before `Complete`, and `Take` and `Leave` of a complete process are after it. So the
//! handle finds the report, unless `Decide` has taken it out. If the handle is dropped before
//! `Complete`, `Complete` says so. All steps that emit the report take it out under the lock, so it
//! is emitted at most once. A report that is left in the slot has a handle, and the handle takes it
//! out. A supervisor that ends refuses further reports under the lock under which it takes the
//! rest.
//!
//! ## Allowed
//! A monitor that is made between `Hold` and `Complete` is notified, although the failure is
//! reported. If the handle is dropped at the moment of the end, the end is counted before `Decide`,
//! so a shutdown may return before the report is emitted.
//!
//! ## Checked by
//! `tests/it/reports/reached.rs`. All shared state is plain data under one lock, so there is no
//! model.

use procession_sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldPhase {
    Unsettled,
    HandleGone,
    Settled,
}

/// Emits a report about the process in the slot `S`.
pub(crate) type TellReport<S> = Box<dyn FnOnce(&S) + Send>;

/// The held report of the process in the slot `S`, if there is one.
pub(crate) struct HeldReport<S>(Mutex<Option<(TellReport<S>, HeldPhase)>>);

impl<S> HeldReport<S> {
    /// `Hold`.
    pub(crate) fn hold(&self, tell: TellReport<S>) {
        *self.0.lock() = Some((tell, HeldPhase::Unsettled));
    }

    /// `Decide`. The caller emits the returned report.
    pub(crate) fn decide(&self, was_heard: bool, has_handle: bool) -> Option<TellReport<S>> {
        let mut held = self.0.lock();
        let phase = &mut held.as_mut()?.1;
        if !was_heard && has_handle && *phase == HeldPhase::Unsettled {
            *phase = HeldPhase::Settled;
            return None;
        }
        let taken = held.take();
        drop(held);
        taken.filter(|_| !was_heard).map(|held| held.0)
    }

    /// `Take`.
    pub(crate) fn forget(&self) {
        let taken = self.0.lock().take();
        drop(taken);
    }

    /// `Leave`. The caller emits the returned report.
    pub(crate) fn leave(&self) -> Option<TellReport<S>> {
        let mut held = self.0.lock();
        let phase = &mut held.as_mut()?.1;
        if *phase == HeldPhase::Unsettled {
            *phase = HeldPhase::HandleGone;
            return None;
        }
        let taken = held.take();
        drop(held);
        taken.map(|held| held.0)
    }
}

impl<S> Default for HeldReport<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}
