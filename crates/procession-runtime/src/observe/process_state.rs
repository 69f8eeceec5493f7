//! The state of a process, as snapshots and views show it.

use std::fmt;

use procession_protocols::process::state::ProcessPhase;

/// The phase of a process, as snapshots show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessState {
    /// In a run queue.
    Ready,
    /// In a step.
    Running,
    /// Waiting, but not for messages.
    Blocked,
    /// Waiting for messages, perhaps among others.
    Idle,
    /// Ended, but the result has not been taken from its handle.
    Complete,
}

impl ProcessState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::Running, Self::Blocked, Self::Idle, Self::Complete];

    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Idle => "idle",
            Self::Complete => "complete",
        }
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<ProcessPhase> for ProcessState {
    /// A process in its step is taken for ready, because its word does not show the step.
    fn from(phase: ProcessPhase) -> Self {
        match phase {
            ProcessPhase::Active => Self::Ready,
            ProcessPhase::Blocked => Self::Blocked,
            ProcessPhase::Idle => Self::Idle,
            ProcessPhase::Complete => Self::Complete,
        }
    }
}
