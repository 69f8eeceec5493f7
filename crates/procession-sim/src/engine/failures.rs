//! Failures of a run.

use std::task::Waker;

use procession::sim::as_outsider;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::{Engine, POINTS_MAX};
use crate::story::Kind;

impl Engine {
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

    /// Notes a failure, and lets the program end.
    pub(super) fn fail(&self, kind: Kind, text: String) {
        let mut state = self.state();
        let waker = state.fail(kind, text, self.elapsed());
        drop(state);
        as_outsider(|| waker.into_iter().for_each(Waker::wake));
    }

    /// Notes a failure that the program itself has found.
    pub(crate) fn fail_by_program(&self, kind: Kind, text: String) {
        self.fail(kind, text);
    }

    /// Notes a panic on a virtual thread, for the hook.
    pub(crate) fn add_panic(&self, message: String, place: String) {
        self.panics.add(message, place);
    }

    /// Notes that the program itself has panicked.
    pub(crate) fn fail_by_panic(&self, message: String) {
        let told = self.panics.take_latest();
        let place = told.map(|(_, place)| place).unwrap_or_default();
        self.fail(Kind::Panic(place), message);
    }

    /// Notes the failures by panics since the last point.
    pub(super) fn note_panics(&self) {
        for (message, place) in self.panics.take() {
            if self.state().panics_fail {
                self.fail(Kind::Panic(place), message);
            }
        }
    }
}
