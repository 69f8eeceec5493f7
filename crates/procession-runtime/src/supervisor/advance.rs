//! The part of a supervisor that starts and stops children: it stops the children in `to_stop` and
//! starts the children in `to_start`, as far as the order allows.

use std::sync::Arc;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedSet;

use super::description::{Request, Spawned, StartReport};
use super::events::tell;
use super::policy::{Stop, Strategy};
use super::tree::{ChildState, Tree};
use crate::relations::links::{self, Cause};
use crate::report::kept::Reports;
use crate::report::supervisor_report::SupervisorEvent;
use crate::scheduler::reach::find;
use crate::sys::nanoseconds;
use crate::{Context, Exit, Pid};

/// The most children that are started between two looks at the mailbox. Starting one takes less
/// than a microsecond.
const STARTS_IN_A_ROW: u32 = 64;

/// The time that a child with [`Stop::Graceful`] has to end if no shutdown says how long that may
/// take.
const GRACEFUL: Duration = Duration::from_secs(5);

/// Returns the time after which a child is terminated that was asked to end.
fn time_to_stop(stop: Stop) -> Option<Duration> {
    match stop {
        Stop::Graceful => Some(GRACEFUL),
        Stop::Within(time) | Stop::Signal(time) => Some(time),
        Stop::Kill | Stop::Wait => None,
    }
}

/// Removes the first child with a time that has come.
fn due(moments: &mut SortedSet<(u64, u64)>, now: u64) -> Option<u64> {
    moments.first().filter(|&&(moment, _)| moment <= now)?;
    moments.pop_first().map(|(_, key)| key)
}

impl Tree {
    /// Starts and stops children, as far as the order allows. Returns `true` if it could do more
    /// without waiting for an event.
    pub(super) fn advance(&mut self, cx: &mut Context<Request>) -> bool {
        let now = cx.slot().shared().world.now();
        while let Some(key) = due(&mut self.agenda.deadlines, now) {
            let Some(child) = self.children.get_mut(&key) else { continue };
            if let ChildState::Stopping { pid, deadline, .. } = &mut child.state {
                *deadline = None;
                let pid = *pid;
                let lifetime = &cx.slot().shared().lifetime;
                if child.spec.stop == Stop::Graceful && lifetime.is_stopping() {
                    // The shutdown began after the stop. Its deadline is the later one.
                    continue;
                }
                if let Some(slot) = find(pid) {
                    crate::process::wake::terminate(&slot);
                    lifetime.note_stopped();
                    if let Some(timeout) = time_to_stop(child.spec.stop) {
                        tell(child, Some(pid), None, SupervisorEvent::StoppedLate { timeout });
                    }
                }
            }
        }
        while let Some(key) = due(&mut self.agenda.delayed, now) {
            if let Some(child) = self.children.get_mut(&key) {
                child.state = ChildState::None;
                self.agenda.to_start.insert(key);
            }
        }
        let together =
            self.is_dynamic() || (self.description.stops_together && self.ending.is_some());
        while together || self.agenda.stopping.is_empty() {
            let Some(key) = self.agenda.to_stop.pop_last() else { break };
            self.begin_stop(cx, key, now);
        }
        if self.start_some(now) {
            return true;
        }
        if self.ending.is_none()
            && self.started.is_none()
            && self.agenda.to_start.is_empty()
            && self.agenda.starting.is_empty()
        {
            self.started = Some(Ok(()));
            self.answer_start();
        }
        // A failed start may be followed by stops.
        self.agenda.stopping.is_empty() && !self.agenda.to_stop.is_empty()
    }

    /// Starts children, as far as the order allows. Returns `true` if it paused because they are
    /// many.
    fn start_some(&mut self, now: u64) -> bool {
        let mut starts = 0;
        while self.ending.is_none()
            && let Some(&key) = self.agenda.to_start.first()
        {
            // The start of one for all waits for every child, because a child that fails to start
            // would stop the others again.
            let for_all = self.description.strategy == Strategy::OneForAll;
            let is_awaited = |&other: &u64| for_all || other < key;
            let has_turn = self.agenda.to_stop.is_empty()
                && self.agenda.stopping.is_empty()
                && !self.agenda.starting.iter().any(is_awaited)
                && !self.agenda.delayed.iter().any(|(_, other)| is_awaited(other));
            if self.in_order() && !has_turn {
                break;
            }
            if starts == STARTS_IN_A_ROW {
                return true;
            }
            starts += 1;
            self.agenda.to_start.pop_first();
            self.begin_start(key, now);
        }
        false
    }

    fn begin_start(&mut self, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let is_again = child.incarnation > 0;
        self.last_incarnation += 1;
        child.incarnation = self.last_incarnation;
        child.failure = None;
        let report = StartReport {
            supervisor: self.own.pid(),
            reports: Arc::clone(&self.reports),
            key,
            incarnation: child.incarnation,
        };
        match child.spec.spawn(report, child.kept.as_ref()) {
            Ok(Spawned { process, monitor }) => {
                let pid = process.pid();
                child.process = child.started.is_some().then_some(process);
                self.pids.insert(pid, key);
                self.significant += usize::from(child.spec.significant);
                if is_again && let Some(own) = self.own.slot() {
                    let log = &Reports::of(own.shared()).supervision;
                    log.note_start(own.pid(), key, pid);
                }
                if child.spec.make.reports_start {
                    child.state = ChildState::Starting(pid, monitor);
                    self.agenda.starting.insert(key);
                } else {
                    self.note_start(key, pid, monitor, now);
                }
            }
            Err(reason) => self.fail_start(key, None, (reason, None), now),
        }
    }

    fn begin_stop(&mut self, cx: &mut Context<Request>, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (ChildState::Starting(pid, monitor) | ChildState::Running(pid, monitor, _)) =
            child.state
        else {
            return;
        };
        let stop = child.spec.stop;
        let after = |time: Duration| now.saturating_add(nanoseconds(time));
        let deadline = time_to_stop(stop).map(after);
        child.state = ChildState::Stopping { pid, monitor, deadline };
        self.agenda.starting.remove(&key);
        self.agenda.stopping.insert(key);
        if let Some(deadline) = deadline {
            self.agenda.deadlines.insert((deadline, key));
        }
        // If the process has ended, its down is on the way.
        let Some(slot) = find(pid).filter(|_| !self.let_go(cx, pid)) else { return };
        match stop {
            Stop::Kill => crate::process::wake::terminate(&slot),
            Stop::Graceful | Stop::Within(_) | Stop::Wait => crate::process::wake::cancel(&slot),
            Stop::Signal(_) => {
                links::deliver(&slot, Some(cx.pid()), Exit::Shutdown, Cause::Sent);
            }
        }
    }

    /// Lets a process go that is being stopped, if it shuts the scheduler down. Otherwise the
    /// supervisor would wait for the process, and the process for its supervisor. Returns `true` if
    /// it has let the process go.
    pub(super) fn let_go(&mut self, cx: &mut Context<Request>, pid: Pid) -> bool {
        let Some(key) = self.pids.get(&pid) else { return false };
        let ChildState::Stopping { monitor, .. } = self.children[key].state else { return false };
        // In this order, because the end of a process clears its mark as well.
        let is_released = find(pid).is_some_and(|slot| {
            links::supervisor(&slot) != Some(cx.pid()) && !slot.state.see().is_complete()
        });
        if is_released {
            cx.unlink(pid);
            cx.demonitor(monitor);
            self.note_end(cx, pid, &Exit::Shutdown);
        }
        is_released
    }
}
