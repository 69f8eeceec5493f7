//! The versions of a program, and the processes that run them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use procession::Pid;
use procession::sync::channel::Sender;
use procession_sync::Mutex;

use super::Program;
use crate::version::Version;

pub(crate) struct Shared(pub(crate) Mutex<State>);

pub(crate) struct State {
    /// The programs have a weak reference to the deployment.
    pub(crate) current: Program,
    pub(crate) previous: Option<Program>,
    /// The processes that have begun, and their versions.
    pub(crate) members: BTreeMap<Pid, Version>,
}

/// What has become of the upgrade of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Upgraded,
    Kept,
    Failed(String),
    Ended,
    /// Another version has become current.
    Superseded,
}

/// The request to a process to continue with another version of its program.
#[derive(Clone)]
pub struct Upgrade(Arc<Request>);

struct Request {
    pid: Pid,
    program: Program,
    /// Takes the outcome, once.
    outcomes: Mutex<Option<Sender<(Pid, Outcome)>>>,
}

impl Upgrade {
    pub(crate) fn new(
        pid: Pid,
        program: Program,
        outcomes: Option<Sender<(Pid, Outcome)>>,
    ) -> Self {
        Self(Arc::new(Request { pid, program, outcomes: Mutex::new(outcomes) }))
    }

    pub(crate) fn program(&self) -> &Program {
        &self.0.program
    }

    /// Returns the request for the version that is current now. If this is a request for another
    /// version, it is superseded.
    pub(crate) fn newest(self) -> Self {
        let current = self.program().current();
        if current.version() == self.program().version() {
            return self;
        }
        self.report(Outcome::Superseded);
        Self::new(self.0.pid, current, None)
    }

    pub(crate) fn report(&self, outcome: Outcome) {
        self.0.report(outcome);
    }
}

impl Request {
    fn report(&self, outcome: Outcome) {
        let sender = self.outcomes.lock().take();
        if let Some(sender) = sender {
            // Ignored: the replacement may have been abandoned.
            drop(sender.try_send((self.pid, outcome)));
        }
    }
}

impl Drop for Request {
    /// A request that is dropped without an outcome was in a process that ended.
    fn drop(&mut self) {
        self.report(Outcome::Ended);
    }
}

impl PartialEq for Upgrade {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upgrade").field(&self.0.program.version()).finish()
    }
}

/// A weak reference from a program to its deployment.
#[derive(Clone)]
pub(crate) struct Link(pub(crate) Weak<Shared>);

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Returns the program that new processes run.
    pub(crate) fn current(&self) -> Option<Program> {
        Some(self.0.upgrade()?.0.lock().current.clone())
    }

    /// Adds a process that has begun. If another version is current, also returns the request for
    /// that.
    pub(crate) fn join(&self, pid: Pid, version: Version) -> (Member, Option<Upgrade>) {
        let member = Member { pid, link: self.clone() };
        let upgrade = member.enter(version);
        (member, upgrade)
    }
}

/// A process that belongs to a deployment, until this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    pid: Pid,
    link: Link,
}

impl Member {
    /// Records the version that the process runs. If another version is current, returns the
    /// request for that.
    pub(crate) fn enter(&self, version: Version) -> Option<Upgrade> {
        let shared = self.link.0.upgrade()?;
        let mut state = shared.0.lock();
        state.members.insert(self.pid, version);
        let is_behind = state.current.version() != version;
        is_behind.then(|| Upgrade::new(self.pid, state.current.clone(), None))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(shared) = self.link.0.upgrade() {
            shared.0.lock().members.remove(&self.pid);
        }
    }
}
