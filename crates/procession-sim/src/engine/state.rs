//! The state of a run, behind the lock of the engine.

use std::task::Waker;

use crate::engine::{DELAYS, Held, State, Status, Virtual};
use crate::faults::Fault;
use crate::net::Net;
use crate::story::{Failure, Kind};
use crate::time::{NEVER, duration};
use crate::turn::Why;

/// Points in a row of one thread after which it is no longer the first choice.
const SLICE: u32 = 64;

impl State {
    pub(super) fn alive(&self) -> usize {
        self.threads.iter().filter(|thread| thread.status != Status::Ended).count()
    }

    /// Returns a fault of the class, if one happens now: one of the values except the first.
    pub(super) fn fault(&mut self, fault: Fault, values: &[u64]) -> Option<u64> {
        if !self.has_faults || self.is_over || !self.setup.faults.contains(fault) {
            return None;
        }
        let value = self.chance.fault(fault, values.len() as u32) as usize;
        (value > 0).then(|| values[value])
    }

    /// Notes that a fault makes a thread late by so much.
    pub(super) fn note_late(&mut self, thread: usize, late: u64) {
        let losing = &mut self.threads[thread].losing;
        *losing = losing.saturating_add(self.bounds.note_fault(late));
    }

    /// Ends the waits of threads with events at their sources. Returns `true` if there is one.
    pub(super) fn poll_sources(&mut self, now: u64) -> bool {
        let mut is_any = false;
        for at in 0..self.threads.len() {
            let thread = &self.threads[at];
            let (Status::Parked { until, is_woken: false }, Some(source)) =
                (thread.status, &thread.source)
            else {
                continue;
            };
            if until > now && source.is_ready() {
                let late = self.call_fault(Fault::Events, &DELAYS).unwrap_or(0);
                if late > 0 {
                    self.note_late(at, late);
                }
                let until = until.min(now.saturating_add(late));
                self.threads[at].status = Status::Parked { until, is_woken: late > 0 };
                is_any = true;
            }
        }
        is_any
    }

    /// Notes the process or the thread that the next decisions of a thread are about.
    pub(super) fn come_to(&mut self, thread: usize, place: impl FnOnce(&Virtual) -> u64) {
        if self.chance.marker.is_some() {
            let place = place(&self.threads[thread]);
            self.threads[thread].place = place;
            self.chance.come_to(place);
        }
    }

    /// Chooses one of the threads that can run.
    pub(super) fn choose_next(&mut self, why: Why, ready: &[u32]) -> u32 {
        #[cfg(procession_sim)]
        if why == Why::Preempt {
            return self.chance.instead(ready);
        }
        self.chance.next(ready, why == Why::Pause)
    }

    /// Returns the threads that can run, the usual choice first.
    pub(super) fn ready(&self, me: usize, why: Why, now: u64) -> Vec<u32> {
        let count = self.threads.len();
        let is_ready = |at: usize| match self.threads[at].status {
            Status::Ready => true,
            Status::Parked { until, .. } | Status::Held { until, .. } => until <= now,
            Status::Ended => false,
        };
        // The thread itself, and then the other threads in turn.
        let goes_on = why == Why::Point && self.in_a_row < SLICE;
        let first = if goes_on { 0 } else { 1 };
        (first..first + count)
            .map(|at| (me + at) % count)
            .filter(|&at| is_ready(at))
            .map(|at| at as u32)
            .collect()
    }

    /// Returns the earliest time at which a thread continues.
    pub(super) fn earliest(&self) -> u64 {
        let times = self.threads.iter().map(|thread| match thread.status {
            Status::Parked { until, .. } | Status::Held { until, .. } => until,
            Status::Ready | Status::Ended => NEVER,
        });
        let network = self.net.as_ref().map_or(NEVER, Net::next_due);
        times.chain([network]).min().unwrap_or(NEVER)
    }

    /// Returns `true` if a woken thread does not run yet.
    pub(super) fn is_any_late(&self) -> bool {
        let is_woken =
            |thread: &Virtual| matches!(thread.status, Status::Parked { is_woken: true, .. });
        self.threads.iter().any(is_woken)
    }

    /// Returns `true` if a thread is preempted.
    pub(super) fn is_any_preempted(&self) -> bool {
        let is_preempted =
            |thread: &Virtual| matches!(thread.status, Status::Held { how: Held::Preempted, .. });
        self.threads.iter().any(is_preempted)
    }

    /// Returns `true` if the run has not failed, and its story is recorded.
    pub(super) fn is_story_open(&self) -> bool {
        self.story.is_told() && !self.is_over
    }

    /// Notes a failure. Returns the waker of the future that is to be abandoned.
    #[must_use]
    pub(super) fn fail(&mut self, kind: Kind, text: String, after: u64) -> Option<Waker> {
        self.has_faults = false;
        if self.is_over && self.failure.is_some() {
            return None;
        }
        self.is_over = true;
        self.failure.get_or_insert(Failure { kind, text, after });
        self.root.take()
    }
}

impl Virtual {
    /// Describes what the thread does, unless it has ended.
    pub(super) fn describe(&self, now: u64) -> Option<String> {
        let name = &self.name;
        let left = |until: u64| duration(until.saturating_sub(now));
        Some(match self.status {
            Status::Ended => return None,
            Status::Ready => format!("{name} can run"),
            Status::Parked { until: NEVER, .. } => format!("{name} is parked"),
            Status::Parked { until, .. } => format!("{name} is parked for {}", left(until)),
            Status::Held { until, how, .. } => {
                let held = match how {
                    Held::Preempted => "is preempted",
                    Held::Blocks | Held::Late => "blocks",
                    Held::Computes => "computes",
                };
                format!("{name} {held} for {}", left(until))
            }
        })
    }
}
