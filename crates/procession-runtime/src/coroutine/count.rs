//! The counts of begun coroutines, and of other processes that stay on a thread.

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::residence::ResidentKind;
use crate::scheduler::seat::Seat;
use crate::scheduler::supply::Supply;
use crate::scheduler::workforce::Workforce;

impl Supply {
    /// Returns `true` if any coroutine of the scheduler has begun and not ended.
    pub(crate) fn has_begun_any(&self, workforce: &Workforce) -> bool {
        self.migrating.load(Relaxed) > 0
            || workforce.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }

    /// Counts a coroutine that has begun and stays nowhere.
    pub(crate) fn count_migrating(&self) {
        self.migrating.fetch_add(1, Relaxed);
    }

    /// Uncounts a coroutine that stayed nowhere and has ended.
    pub(crate) fn uncount_migrating(&self) {
        self.migrating.fetch_sub(1, Relaxed);
    }
}

impl Seat {
    /// Returns the number of processes that stay here.
    pub(crate) fn residents(&self) -> u32 {
        // Relaxed: the thread that sits here has itself counted the processes that have begun here.
        // For other threads this is a hint.
        self.coroutines.load(Relaxed).saturating_add(self.locals.load(Relaxed))
    }

    /// Counts a process that stays here.
    pub(crate) fn count_resident(&self, kind: ResidentKind) {
        self.residents_of(kind).fetch_add(1, Relaxed);
    }

    /// Uncounts a process that stayed here and has ended.
    pub(crate) fn uncount_resident(&self, kind: ResidentKind) {
        self.residents_of(kind).fetch_sub(1, Relaxed);
    }

    fn residents_of(&self, kind: ResidentKind) -> &AtomicU32 {
        match kind {
            ResidentKind::Coroutine => &self.coroutines,
            ResidentKind::Local => &self.locals,
        }
    }
}

#[cfg(test)]
mod tests;
