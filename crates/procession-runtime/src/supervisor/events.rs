//! The reactions of a supervisor to what happens to its children.

use std::sync::Arc;
use std::time::Duration;

use super::description::Request;
use super::error::{ChildError, StartError, StartReason};
use super::policy::{AutoShutdown, Restart, Strategy};
use super::tree::{Child, ChildState, Tree};
use crate::process::slot::Slot;
use crate::relations::signal::MonitorRef;
use crate::report::failure::{ReportedChild, tell_owed, tell_supervisor};
use crate::report::kept::Reports;
use crate::report::owed::OwedReport;
use crate::report::supervisor_report::{ChildFailure, RestartLimit, SupervisorEvent};
use crate::report::text::{EndedText, Quoted};
use crate::scheduler::current;
use crate::sys::nanoseconds;
use crate::{Context, Exit, Pid};

/// The report of a process that failed by itself.
pub(super) type MaybeOwed = Option<Box<OwedReport>>;

/// Reports what the supervisor, which runs, does about a child and its process.
pub(super) fn tell(child: &Child, process: Option<Pid>, owed: MaybeOwed, event: SupervisorEvent) {
    let Some(own) = current::current() else { return };
    let child = ReportedChild {
        id: child.spec.id.clone(),
        label: child.spec.label.as_deref(),
        reporting: child.spec.reporting,
        process,
        owed,
    };
    tell_supervisor(&own, child, event);
}

/// Returns `true` if a failed start is reported although its caller gets the error. This is the
/// case if the child is described so, or if the child has panicked, because the panic hook of the
/// runtime has kept std's hook silent.
fn is_reported_anyway(own: &Slot, child: &Child, owed: &MaybeOwed) -> bool {
    let reporting = child.spec.reporting.unwrap_or(Reports::of(own.shared()).hooks.reporting);
    reporting.is_always() || owed.as_ref().is_some_and(|owed| owed.report.panicked_at.is_some())
}

/// Reports a failure that the supervisor, which runs, does nothing about.
fn tell_ignored(owed: MaybeOwed) {
    if let (Some(own), Some(owed)) = (current::current(), owed) {
        tell_owed(&own, &owed);
    }
}

/// Returns the reason with which a supervisor ends that has exceeded its restart limit.
fn gave_up(child: &Child, failure: &ChildFailure, intensity: u32, period: Duration) -> Arc<str> {
    let limit = RestartLimit(intensity, period);
    let ended = match failure {
        ChildFailure::Ended(exit) => EndedText(exit, None).to_string(),
        ChildFailure::NotStarted(reason) => format!("did not start: {reason}"),
    };
    match child.spec.label.as_ref().or(child.spec.id.as_ref()) {
        Some(label) => format!("{} needs {limit}; it {ended}", Quoted(label)).into(),
        None => format!("a child needs {limit}; it {ended}").into(),
    }
}

impl Tree {
    pub(super) fn note_start(&mut self, key: u64, pid: Pid, monitor: MonitorRef, now: u64) {
        if let Some(child) = self.children.get_mut(&key) {
            child.state = ChildState::Running(pid, monitor, now);
            child.is_new = false;
            if child.spec.significant {
                self.significant_ended = false;
            }
            if let (Some(started), Some(process)) = (child.started.take(), child.process.take()) {
                started.send(Ok(process));
            }
        }
    }

    /// Notes that the start of a child failed. The child has no process now.
    pub(super) fn fail_start(
        &mut self,
        key: u64,
        pid: Option<Pid>,
        (reason, owed): (StartReason, MaybeOwed),
        now: u64,
    ) {
        let Some(child) = self.children.get_mut(&key) else { return };
        // A restart is reported when it is decided.
        if child.started.is_none() && (self.started.is_some() || !child.is_new) {
            let is_taken = reason.register_error().is_some_and(|error| error.owner().is_some());
            if is_taken && child.spec.restart == Restart::Transient && self.ending.is_none() {
                // Another process has taken the place of the child. Further attempts would fail as
                // well, until the supervisor ends itself and all other children.
                tell(child, pid, owed, SupervisorEvent::NotStarted { reason: reason.text() });
                return self.end_for_good(key);
            }
            let failure = ChildFailure::NotStarted(reason.text());
            return self.restart(key, pid, (failure, owed), 0, now);
        }
        // A nested supervisor has no caller. Its own supervisor learns of the failed start.
        let has_caller = match (&child.started, &self.awaited) {
            (Some(started), _) => !started.is_abandoned(),
            (None, Some(awaited)) => !awaited.is_abandoned(),
            (None, None) => true,
        };
        let is_told = |own: &Slot| !has_caller || is_reported_anyway(own, child, &owed);
        if self.own.slot().is_some_and(is_told) {
            tell(child, pid, owed, SupervisorEvent::NotStarted { reason: reason.text() });
        }
        let Some(started) = child.started.take() else {
            // It is a child of the description, without which the tree does not start.
            let id = child.spec.id.clone().unwrap_or_else(|| format!("#{key}").into());
            let error = StartError::Child { id, reason };
            self.end(Exit::failed(error.to_string()));
            self.started = Some(Err(error));
            return;
        };
        started.send(Err(ChildError::Start(reason)));
        child.discard_kept();
        let is_last = child.spec.significant && self.significant_ended;
        if child.is_new {
            self.forget(key);
        }
        let is_awaited = self.description.auto_shutdown == AutoShutdown::AllSignificant;
        if is_last && is_awaited && !self.has_significant() {
            self.end(Exit::Shutdown);
        }
    }

    /// Notes that a process has ended, and restarts its child if necessary.
    pub(super) fn note_end(&mut self, cx: &mut Context<Request>, pid: Pid, exit: &Exit) {
        let Some(key) = self.pids.remove(&pid) else { return };
        let now = cx.slot().shared().world.now();
        let owed = Reports::of(cx.slot().shared()).owed.take(cx.pid(), pid);
        self.agenda.starting.remove(&key);
        let Some(child) = self.children.get_mut(&key) else { return tell_ignored(owed) };
        self.significant -= usize::from(child.spec.significant);
        let before = std::mem::replace(&mut child.state, ChildState::None);
        if let ChildState::Stopping { deadline, .. } = before {
            self.agenda.stopping.remove(&key);
            if let Some(deadline) = deadline {
                self.agenda.deadlines.remove(&(deadline, key));
            }
            tell_ignored(owed);
            return self.note_stop(key);
        }
        if self.agenda.to_stop.remove(&key) {
            // The child ended before its turn to be stopped.
            tell_ignored(owed);
            return self.note_stop(key);
        }
        let log = &Reports::of(cx.slot().shared()).supervision;
        log.note(cx.pid(), (key, child.spec.id.as_ref()), (pid, exit, now));
        let ran = match before {
            ChildState::Running(_, _, since) => now - since,
            _ => {
                // A child that ends drops its report, and its exit says why. It says nothing if the
                // child has returned, or was terminated because the report was dropped elsewhere.
                let says_why = !matches!(exit, Exit::Normal | Exit::Shutdown | Exit::Killed);
                let reason = child
                    .failure
                    .take()
                    .filter(|reason| !says_why || *reason != StartReason::not_reported());
                let reason = reason.unwrap_or_else(|| exit.to_string().into());
                return self.fail_start(key, Some(pid), (reason, owed), now);
            }
        };
        let starts_again = match child.spec.restart {
            _ if matches!(exit, Exit::NameLost(_)) => false,
            Restart::Permanent => true,
            Restart::Transient => !matches!(exit, Exit::Normal | Exit::Shutdown | Exit::GaveUp(_)),
            Restart::Temporary => false,
        };
        if starts_again {
            let failure = ChildFailure::Ended(exit.clone());
            return self.restart(key, Some(pid), (failure, owed), ran, now);
        }
        tell_ignored(owed);
        self.end_for_good(key);
    }

    /// Notes that a child has ended and is not restarted.
    fn end_for_good(&mut self, key: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.discard_kept();
        let (significant, temporary) =
            (child.spec.significant, child.spec.restart == Restart::Temporary);
        if temporary || self.is_dynamic() {
            self.forget(key);
        }
        self.significant_ended |= significant;
        let ends = match self.description.auto_shutdown {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => significant,
            AutoShutdown::AllSignificant => significant && !self.has_significant(),
        };
        if ends {
            self.end(Exit::Shutdown);
        }
    }

    /// Returns `true` if a significant child has a process or will get one.
    fn has_significant(&self) -> bool {
        let delayed = self.agenda.delayed.iter().map(|(_, key)| key);
        let mut waiting = self.agenda.to_start.iter().chain(delayed);
        self.significant > 0 || waiting.any(|key| self.children[key].spec.significant)
    }

    /// Notes that a child has stopped on request.
    pub(super) fn note_stop(&mut self, key: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.state = ChildState::None;
        if child.spec.significant {
            self.significant_ended = false;
        }
        for stopped in child.stopped.drain(..) {
            stopped.send(Ok(()));
        }
        let mut is_gone = child.spec.restart == Restart::Temporary;
        if child.starts_again && self.ending.is_none() && !is_gone {
            self.agenda.to_start.insert(key);
            return;
        }
        if let Some(started) = child.started.take() {
            started.send(Err(ChildError::Start("it was stopped".into())));
            is_gone |= child.is_new;
        }
        child.discard_kept();
        if is_gone || self.is_dynamic() {
            self.forget(key);
        }
    }

    /// Arranges the restart of a child that ran for the time `ran`, or failed to start.
    fn restart(
        &mut self,
        key: u64,
        pid: Option<Pid>,
        (failure, owed): (ChildFailure, MaybeOwed),
        ran: u64,
        now: u64,
    ) {
        if self.ending.is_some() {
            return tell_ignored(owed);
        }
        let (intensity, period_given) = (self.description.intensity, self.description.period);
        let period = nanoseconds(period_given);
        while self.restarts.front().is_some_and(|&then| now - then >= period) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.description.intensity as usize {
            let Some(child) = self.children.get(&key) else { return };
            let exit = Exit::GaveUp(gave_up(child, &failure, intensity, period_given));
            let event = SupervisorEvent::GaveUp { failure, intensity, period: period_given };
            tell(child, pid, owed, event);
            return self.end(exit);
        }
        self.restarts.push_back(now);
        let wait = self.draw_wait(key, ran);
        if let Some(child) = self.children.get(&key) {
            let (restart, wait) = (self.restarts.len() as u32, Duration::from_nanos(wait));
            let period = period_given;
            let event = SupervisorEvent::Restarts { failure, restart, intensity, period, wait };
            tell(child, pid, owed, event);
        }
        match self.description.strategy {
            Strategy::OneForOne | Strategy::Dynamic => {}
            Strategy::OneForAll => self.recycle(0, key),
            Strategy::RestForOne => self.recycle(key + 1, key),
        }
        if let Some(child) = self.children.get_mut(&key) {
            // Even without a wait, the restart is the next event and not a loop here, because a
            // start may fail immediately.
            let until = now.saturating_add(wait);
            child.state = ChildState::Delayed { until };
            self.agenda.delayed.insert((until, key));
        }
    }

    /// Draws the time that a child waits for its restart.
    fn draw_wait(&mut self, key: u64, ran: u64) -> u64 {
        let (Some(back_off), Some(child)) =
            (self.description.back_off, self.children.get_mut(&key))
        else {
            return 0;
        };
        let (first, most) = (nanoseconds(back_off.first), nanoseconds(back_off.most));
        if ran > most {
            child.restarts = 0;
        }
        let doubled = first.saturating_mul(1_u64.checked_shl(child.restarts).unwrap_or(u64::MAX));
        child.restarts = child.restarts.saturating_add(1);
        let wait = doubled.min(most);
        wait / 2 + self.generator.below_u64(wait - wait / 2 + 1)
    }

    /// Stops all children from the key `from` on, except `but`, and has them started again.
    fn recycle(&mut self, from: u64, but: u64) {
        for (&key, child) in self.children.range_mut(&from).filter(|&(&key, _)| key != but) {
            child.starts_again = true;
            match child.state {
                ChildState::Starting(..) | ChildState::Running(..) => {
                    self.agenda.to_stop.insert(key);
                }
                ChildState::None => drop(self.agenda.to_start.insert(key)),
                ChildState::Stopping { .. } | ChildState::Delayed { .. } => {}
            }
        }
    }

    /// Makes the supervisor end with this exit, once all children have ended.
    pub(super) fn end(&mut self, exit: Exit) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(exit);
        self.started.get_or_insert(Err(StartError::Ended));
        self.agenda.to_start.clear();
        self.agenda.delayed.clear();
        for (&key, child) in self.children.iter_mut() {
            child.starts_again = false;
            match child.state {
                ChildState::Starting(..) | ChildState::Running(..) => {
                    self.agenda.to_stop.insert(key);
                }
                ChildState::Delayed { .. } => child.state = ChildState::None,
                ChildState::None | ChildState::Stopping { .. } => {}
            }
            if let Some(started) = child.started.take() {
                started.send(Err(ChildError::Ended));
            }
        }
    }

    pub(super) fn answer_start(&mut self) {
        if let Some(started) = &self.started
            && let Some(awaited) = self.awaited.take()
        {
            awaited.send(started.clone());
        }
    }
}
