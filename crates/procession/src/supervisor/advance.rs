//! How a supervisor brings its children nearer to what they are to be: those in `to_stop` are stopped, those in `to_start` started, as far as
//! the order allows.

use std::time::Duration;

use super::description::{Report, Request};
use super::policy::Stop;
use super::tree::{Process, Tree};
use crate::relations::{self, Cause};
use crate::scheduler::reach::find;
use crate::sys::nanoseconds;
use crate::{Context, Exit};

/// How many children are started between two looks at the mailbox. Starting one costs less than a microsecond.
const STARTS_IN_A_ROW: u32 = 64;

impl Tree {
    /// Brings the children nearer to what they are to be; says whether it could do more at once.
    pub(super) fn go_on(&mut self, cx: &mut Context<Request>) -> bool {
        let now = cx.slot().shared().world.now();
        while let Some(&(moment, key)) = self.deadlines.first()
            && moment <= now
        {
            self.deadlines.pop_first();
            if let Some(Process::Stopping { pid, deadline }) =
                self.children.get_mut(&key).map(|child| &mut child.process)
            {
                *deadline = None;
                if let Some(slot) = find(*pid) {
                    crate::process::wake::terminate(&slot);
                }
            }
        }
        while let Some(&(moment, key)) = self.delayed.first()
            && moment <= now
        {
            self.delayed.pop_first();
            if let Some(child) = self.children.get_mut(&key) {
                child.process = Process::None;
                self.to_start.insert(key);
            }
        }
        while self.is_dynamic() || self.stopping.is_empty() {
            let Some(key) = self.to_stop.pop_last() else { break };
            self.begin_stop(cx, key, now);
        }
        let mut starts = 0;
        while self.ending.is_none()
            && let Some(&key) = self.to_start.first()
        {
            let alone = self.to_stop.is_empty()
                && self.stopping.is_empty()
                && self.starting.is_empty()
                && self.delayed.is_empty();
            if self.in_order() && !alone {
                break;
            }
            if starts == STARTS_IN_A_ROW {
                return true;
            }
            starts += 1;
            self.to_start.pop_first();
            self.begin_start(key, now);
        }
        if self.ending.is_none() && self.started.is_none() && self.to_start.is_empty() && self.starting.is_empty() {
            self.started = Some(Ok(()));
            self.answer_start();
        }
        // What failed to start at the beginning is followed by stops.
        self.ending.is_some() && self.stopping.is_empty() && !self.to_stop.is_empty()
    }

    pub(super) fn begin_start(&mut self, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        self.last_incarnation += 1;
        child.incarnation = self.last_incarnation;
        child.failure = None;
        let report = Report { supervisor: self.own.clone(), key, incarnation: child.incarnation };
        match child.spec.spawn(report) {
            Ok((pid, monitor)) => {
                self.pids.insert(pid, key);
                self.significant += usize::from(child.spec.significant);
                if child.spec.says_so() {
                    child.process = Process::Starting(pid, monitor);
                    self.starting.insert(key);
                } else {
                    self.note_start(key, pid, monitor, now);
                }
            }
            Err(reason) => self.fail_start(key, reason, now),
        }
    }

    pub(super) fn begin_stop(&mut self, cx: &mut Context<Request>, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (Process::Starting(pid, monitor) | Process::Runs(pid, monitor, _)) = child.process else { return };
        self.starting.remove(&key);
        let mut deadline = None;
        // If it has ended, its down is on its way.
        if let Some(slot) = find(pid) {
            if relations::supervisor(&slot) != Some(cx.pid()) {
                // It was released: it shuts the scheduler down.
                cx.unlink(pid);
                cx.demonitor(monitor);
                self.pids.remove(&pid);
                self.note_stop(key);
                return;
            }
            let after = |time: Duration| Some(now.saturating_add(nanoseconds(time)));
            match child.spec.stop {
                Stop::Kill => crate::process::wake::terminate(&slot),
                Stop::Wait => crate::process::wake::cancel(&slot),
                Stop::Within(time) => {
                    crate::process::wake::cancel(&slot);
                    deadline = after(time);
                }
                Stop::Signal(time) => {
                    relations::deliver(&slot, Some(cx.pid()), Exit::Shutdown, Cause::Sent);
                    deadline = after(time);
                }
            }
        }
        child.process = Process::Stopping { pid, deadline };
        self.stopping.insert(key);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, key));
        }
    }
}
