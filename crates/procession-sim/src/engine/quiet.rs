//! Quiet points, and failures.

use std::task::Waker;

use procession::sim::as_outsider;
use procession_sync::host::MutexGuard;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::{Engine, GRAIN, LEAPS, NEVER, POINTS_MAX, State, TIMER_SLACK, duration};
use crate::faults::Fault;
use crate::story::Kind;

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
        // A law may have noted something for later. It is no store of the thread that happens to
        // run here, which could become visible after later ones.
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
            return self.fail(Kind::Deadlock, text);
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

    /// Describes the processes that wait, and the cuts of the network.
    pub(super) fn waiting(&self) -> Vec<String> {
        let state = self.state();
        let subjects = state.subjects.clone();
        let names = state.names_of_hosts();
        let now = self.time();
        let cuts = state.net.as_ref().map_or_else(Vec::new, |net| net.describe_cuts(now));
        drop(state);
        let mut waiting = Vec::new();
        for (subject, name) in subjects.iter().zip(names) {
            let processes = subject.upgrade().map(|one| one.waiting()).unwrap_or_default();
            waiting.extend(processes.into_iter().map(|process| match &name {
                Some(name) => format!("on {name}: {process}"),
                None => process,
            }));
        }
        waiting.extend(cuts);
        waiting
    }

    /// Ends a program that does not end.
    pub(super) fn note_livelock(&self) {
        if self.points.load(Relaxed) > POINTS_MAX {
            if self.state().is_story_open() {
                let lines = self.working().into_iter().chain(self.waiting()).collect();
                self.state().story.waiting = lines;
            }
            self.fail(Kind::Livelock, format!("no end after {POINTS_MAX} points"));
        }
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
        self.fail(Kind::Law, law)
    }

    /// Returns the law of the end that is broken, if any, once all threads have ended.
    fn broken_law_of_the_end(&self) -> Option<String> {
        let subjects = self.state().subjects.clone();
        subjects.iter().find_map(|one| one.upgrade()?.broken_law_of_the_end())
    }

    /// Notes a failure, and lets the program end.
    pub(super) fn fail(&self, kind: Kind, text: String) -> Quiet {
        let mut state = self.state();
        let waker = state.fail(kind, text, self.elapsed());
        drop(state);
        as_outsider(|| waker.into_iter().for_each(Waker::wake));
        Quiet::GoesOn
    }

    /// Notes a failure that the program itself has found.
    pub(crate) fn fail_by_program(&self, kind: Kind, text: String) {
        self.fail(kind, text);
    }
}
