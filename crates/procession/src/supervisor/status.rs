//! What a supervisor says of its children.

use std::sync::Arc;

use super::policy::Restart;
use crate::{Instant, Pid};

/// Which child: by its id, or by its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildKey {
    /// By its id.
    Id(Arc<str>),
    /// By its process, if it has one.
    Pid(Pid),
}

impl From<&str> for ChildKey {
    fn from(id: &str) -> Self {
        Self::Id(id.into())
    }
}

impl From<Arc<str>> for ChildKey {
    fn from(id: Arc<str>) -> Self {
        Self::Id(id)
    }
}

impl From<Pid> for ChildKey {
    fn from(pid: Pid) -> Self {
        Self::Pid(pid)
    }
}

/// What a child is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildStatus {
    /// It runs.
    Running(Pid),
    /// It has not said yet that it has started.
    Starting(Pid),
    /// It is being stopped.
    Stopping(Pid),
    /// It is to be started: at once after others, or at this moment.
    Waiting(Instant),
    /// It was stopped, or has ended.
    Stopped,
}

impl ChildStatus {
    /// Its process, if it has one.
    pub fn pid(self) -> Option<Pid> {
        match self {
            Self::Running(pid) | Self::Starting(pid) | Self::Stopping(pid) => Some(pid),
            Self::Waiting(_) | Self::Stopped => None,
        }
    }
}

/// One child, as its supervisor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id, if it has one.
    pub id: Option<Arc<str>>,
    /// What it is doing.
    pub status: ChildStatus,
    /// When it is restarted.
    pub restart: Restart,
    /// Whether it is a supervisor.
    pub is_supervisor: bool,
}

/// How many children there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// All of them.
    pub children: usize,
    /// Those that run.
    pub running: usize,
    /// Those that are supervisors, running or not.
    pub supervisors: usize,
}
