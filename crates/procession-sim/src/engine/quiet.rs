//! Quiet points.

use procession::sim::as_outsider;
use procession_sync::host::MutexGuard;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::{Engine, GRAIN, State};
use crate::faults::Fault;
use crate::story::Kind;
use crate::time::{MS, NEVER, SECOND, duration};

/// How late a timer may be found if no thread is preempted.
const TIMER_SLACK: u64 = MS;
/// By how much the clock may leap. The first one is no fault.
const LEAPS: [u64; 4] = [0, 20 * MS, SECOND, 3600 * SECOND];

#[derive(PartialEq, Eq)]
pub(super) enum Quiet {
    GoesOn,
    Stopped,
}

impl Engine {
    /// Handles a moment at which no thread can run.
    pub(super) fn go_on_quietly<'a>(&'a self, state: MutexGuard<'a, State>) -> Quiet {
        #[cfg(procession_sim)]
        self.settle_memory();
        let quiet = self.look_and_go_on(state);
        // A law may have noted something for later. That is not a store of the thread that happens
        // to run here, which could become visible after later stores.
        #[cfg(procession_sim)]
        self.settle_memory();
        quiet
    }

    /// Looks whether a law is broken, and lets time pass.
    fn look_and_go_on<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Quiet {
        let now = self.time();
        if !state.is_any_preempted() && !state.is_over {
            let subjects = state.subjects.clone();
            drop(state);
            if let Some(law) =
                subjects.iter().find_map(|one| one.upgrade()?.broken_law_of_wake_ups())
            {
                return self.fail_quietly(law);
            }
            state = self.state();
        }
        if !state.is_any_preempted() && !state.is_any_late() && !state.is_over {
            let settling = std::mem::take(&mut state.settling);
            let subjects = state.subjects.clone();
            drop(state);
            if let Some(law) = subjects.iter().find_map(|one| one.upgrade()?.broken_law()) {
                return self.fail_quietly(law);
            }
            if let Some(law) = self.broken_bound() {
                return self.fail_quietly(law);
            }
            if !settling.is_empty() {
                as_outsider(|| {
                    for (flag, waker) in settling {
                        flag.store(true, Relaxed);
                        waker.wake();
                    }
                });
                return Quiet::GoesOn;
            }
            state = self.state();
            let due = subjects
                .iter()
                .filter_map(|one| Some(one.upgrade()?.deadline()))
                .min()
                .unwrap_or(NEVER);
            let until = state.earliest();
            let slack = TIMER_SLACK + if self.is_coarse() { 2 * GRAIN } else { 0 };
            if due != NEVER && until > due.max(now).saturating_add(slack) {
                drop(state);
                return self.fail_quietly("a timer is due, and no thread wakes for it".into());
            }
        }
        let mut until = state.earliest();
        if until == NEVER {
            let left = state.alive();
            if state.is_over || left == 0 {
                drop(state);
                if left == 0
                    && let Some(law) = self.broken_law_of_the_end()
                {
                    self.fail(Kind::Law, law);
                }
                self.stop(left);
                return Quiet::Stopped;
            }
            drop(state);
            let waiting = self.waiting();
            let text = "all processes wait, and nothing is due".to_owned();
            self.state().story.waiting = waiting;
            self.fail(Kind::Deadlock, text);
            return Quiet::GoesOn;
        }
        if let Some(leap) = state.fault(Fault::ClockLeap, &LEAPS) {
            state.bounds.note_fault(leap);
            let (to, leap) = (until, leap);
            until = until.saturating_add(leap);
            state.story.tell(to, || format!("the clock leaps by {}", duration(leap)));
        }
        state.busy = 0;
        // Relaxed: the turn orders it.
        self.now.fetch_max(until, Relaxed);
        Quiet::GoesOn
    }

    /// Notes that a law of the scheduler is broken, and what each thread does.
    fn fail_quietly(&self, law: String) -> Quiet {
        let mut state = self.state();
        let now = self.time();
        if state.story.is_told() {
            let threads = state.threads.iter().filter_map(|thread| thread.describe(now)).collect();
            state.story.waiting = threads;
        }
        drop(state);
        self.fail(Kind::Law, law);
        Quiet::GoesOn
    }

    /// Returns the law of the end that is broken, if any, once all threads have ended.
    fn broken_law_of_the_end(&self) -> Option<String> {
        let subjects = self.state().subjects.clone();
        subjects.iter().find_map(|one| one.upgrade()?.broken_law_of_the_end())
    }
}
