//! The requests that a supervisor serves.

use super::description::{Asked, ChildSpec, Request};
use super::error::{ChildError, StartReason};
use super::status::{ChildInfo, ChildKey, Counts};
use super::tree::{Child, ChildState, Tree};
use crate::process::slot::SlotRef;
use crate::scheduler::reach::find;
use crate::sys::nanoseconds;
use crate::time::Instant;

impl Tree {
    pub(super) fn serve(&mut self, request: Request) {
        match request {
            Request::Which(reply) => {
                let info = |(&key, child): (&u64, &Child)| ChildInfo {
                    id: child.spec.id.clone(),
                    status: self.status(key, child),
                    restart: child.spec.restart,
                    is_supervisor: child.spec.is_supervisor(),
                };
                reply.send(self.children.iter().map(info).collect());
            }
            Request::Count(reply) => {
                let count = |wanted: fn(&Child) -> bool| {
                    self.children.values().filter(|&child| wanted(child)).count()
                };
                reply.send(Counts {
                    children: self.children.len(),
                    running: count(|child| matches!(child.state, ChildState::Running(..))),
                    supervisors: count(|child| child.spec.is_supervisor()),
                });
            }
            Request::Status(child, reply) => {
                reply.send(self.find(&child).map(|key| self.status(key, &self.children[&key])));
            }
            Request::Start(spec, reply) => self.add_child(*spec, reply),
            Request::Terminate(child, reply) => match self.find(&child) {
                Ok(key) => self.terminate_child(key, reply),
                Err(error) => reply.send(Err(error)),
            },
            Request::Restart(child, reply) => match self.find_stopped(&child) {
                Ok(key) => {
                    if let Some(child) = self.children.get_mut(&key) {
                        child.started = Some(reply);
                        child.is_new = false;
                        self.agenda.to_start.insert(key);
                    }
                }
                Err(error) => reply.send(Err(error)),
            },
            Request::Delete(child, reply) => {
                reply.send(self.find_stopped(&child).map(|key| self.forget(key)));
            }
        }
    }

    /// Notes the reports of children that have started or failed to.
    pub(super) fn note_reports(&mut self) {
        for (key, incarnation, result) in self.reports.take() {
            self.note_report(key, incarnation, result);
        }
    }

    fn note_report(&mut self, key: u64, incarnation: u64, result: Result<(), StartReason>) {
        let Some(child) =
            self.children.get_mut(&key).filter(|child| child.incarnation == incarnation)
        else {
            return;
        };
        let ChildState::Starting(pid, monitor) = child.state else { return };
        match result {
            Ok(()) => {
                self.agenda.starting.remove(&key);
                let now = nanoseconds(
                    Instant::now().saturating_duration_since(Instant::from_nanoseconds(0)),
                );
                self.note_start(key, pid, monitor, now);
            }
            Err(reason) => {
                // A supervisor ends on its own, after its children. The start has failed once its
                // process has ended.
                child.failure = Some(reason);
                if !child.spec.is_supervisor()
                    && let Some(slot) = find(pid)
                {
                    crate::process::wake::terminate(&slot);
                }
            }
        }
    }

    fn add_child(&mut self, spec: ChildSpec, reply: Asked<SlotRef>) {
        let refused = if self.ending.is_some() {
            Err(ChildError::Ended)
        } else if let Err(error) = self.description.check_child(&spec) {
            Err(ChildError::Spec(error))
        } else {
            match spec
                .id
                .as_ref()
                .and_then(|id| self.ids.get(id))
                .map(|key| self.children[key].state.pid())
            {
                Some(Some(pid)) => Err(ChildError::AlreadyStarted(pid)),
                Some(None) => Err(ChildError::AlreadyPresent),
                None => Ok(()),
            }
        };
        match refused {
            Ok(()) => self.add(spec, Some(reply)),
            Err(error) => {
                // Before the answer, because its closures belong to the caller.
                drop(spec);
                reply.send(Err(error));
            }
        }
    }

    fn terminate_child(&mut self, key: u64, reply: Asked<()>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.starts_again = false;
        match child.state {
            ChildState::Starting(..) | ChildState::Running(..) => {
                child.stopped.push(reply);
                self.agenda.to_stop.insert(key);
            }
            ChildState::Stopping { .. } => child.stopped.push(reply),
            ChildState::None | ChildState::Delayed { .. } => {
                if let ChildState::Delayed { until } = child.state {
                    self.agenda.delayed.remove(&(until, key));
                }
                child.stopped.push(reply);
                self.agenda.to_start.remove(&key);
                self.note_stop(key);
            }
        }
    }

    /// Returns the key of a child that has no process and is not about to get one.
    fn find_stopped(&self, child: &ChildKey) -> Result<u64, ChildError> {
        if self.ending.is_some() {
            return Err(ChildError::Ended);
        }
        let key = self.find(child)?;
        match self.children[&key].state {
            ChildState::None if !self.agenda.to_start.contains(&key) => Ok(key),
            ChildState::None | ChildState::Delayed { .. } => Err(ChildError::Restarting),
            other => Err(other.pid().map_or(ChildError::NotFound, ChildError::Running)),
        }
    }
}
