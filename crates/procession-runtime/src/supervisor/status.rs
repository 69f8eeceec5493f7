//! The answers of a supervisor about its children.

use std::sync::Arc;

use super::policy::Restart;
use crate::Pid;
use crate::time::Instant;

/// Names a child, by its id or by its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildKey {
    /// The id of the child.
    Id(Arc<str>),
    /// The process of the child, if it has one.
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

/// The status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildStatus {
    /// The child runs.
    Running(Pid),
    /// The child has not reported yet that it has started.
    Starting(Pid),
    /// The child is being stopped.
    Stopping(Pid),
    /// The child will be started: at this time, or as soon as the order allows.
    Waiting(Instant),
    /// The child was stopped, or has ended for good.
    Stopped,
}

impl ChildStatus {
    /// Returns the process of the child, if it has one.
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
    /// The id of the child, if it has one.
    pub id: Option<Arc<str>>,
    /// The status of the child.
    pub status: ChildStatus,
    /// When the child is restarted.
    pub restart: Restart,
    /// `true` if the child is a supervisor.
    pub is_supervisor: bool,
}

/// The numbers of children of a supervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// All children.
    pub children: usize,
    /// The children that run.
    pub running: usize,
    /// The children that are supervisors, running or not.
    pub supervisors: usize,
}
