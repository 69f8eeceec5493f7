//! The report of leaks: processes that can never continue, and processes that only look so.

pub(crate) mod search;

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::Pid;
use crate::observe::wait_cycle::what_of;
use crate::process::shown_waits::WaitReason;
use crate::process::wait_reason::Waiting;

/// Processes that can never continue, and groups of processes of which this is only suspected.
///
/// Made by [`Scheduler::leaks`](crate::Scheduler::leaks), which says what it cannot know.
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Leaks {
    /// Processes that can never continue, by what the runtime has recorded. At most 1000, those
    /// with the lowest slots.
    pub leaked: Vec<Leak>,
    /// Number of processes that can never continue.
    pub leaked_total: u64,
    /// Groups of processes that look leaked, the largest first. At most 100.
    pub suspected: Vec<Suspicion>,
}

/// A process that can never continue unless it is ended from outside.
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// The process.
    pub pid: Pid,
    /// Its label, if it has one, cut after 120 characters.
    pub label: Option<String>,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// What it waits for.
    pub reason: WaitReason,
    /// Where it waits, as in [`ProcessWait::location`](crate::look::ProcessWait::location).
    pub location: Option<&'static Location<'static>>,
    /// Why the wait never ends.
    pub cause: LeakCause,
    /// The other process in the cause, unless that is [`LeakCause::Unreachable`].
    pub other: Option<Pid>,
    /// The least time for which it has waited.
    pub at_least: Duration,
}

/// The reason why a wait never ends.
///
/// Available with the crate feature `look`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeakCause {
    /// Nothing refers to the process: no address, waker or handle is left, and its PID has not left
    /// the runtime.
    Unreachable,
    /// The only handle of the process, with the only address if there is one, belongs to another
    /// process, which is leaked itself and waits for the end of this process.
    Handle,
    /// The process waits only for another process, which is leaked itself, or for itself.
    Process,
    /// The lock was held by another process, which has ended without its release. For example, it
    /// has forgotten the guard.
    HolderEnded,
}

impl LeakCause {
    /// Returns the name of the cause.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Handle => "handle",
            Self::Process => "process",
            Self::HolderEnded => "holder_ended",
        }
    }
}

/// Processes of one label and one place of spawn that look leaked.
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suspicion {
    /// Their label, if they have one, cut after 120 characters.
    pub label: Option<String>,
    /// Where they were spawned.
    pub spawned_at: &'static Location<'static>,
    /// Number of processes.
    pub count: u64,
    /// Why they look leaked.
    pub sign: LeakSign,
    /// What they wait for, if the sign is [`LeakSign::LongWait`].
    pub waiting: Option<Waiting>,
    /// The longest of the waits or, for [`LeakSign::Growth`], the time since the first look that is
    /// kept.
    pub since: Duration,
    /// Number of processes at that look. 0 for [`LeakSign::LongWait`].
    pub before: u64,
}

/// The reason why a group of processes looks leaked.
///
/// Available with the crate feature `look`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeakSign {
    /// Each has waited for at least [`suspect_after`](crate::Builder::suspect_after), with no
    /// timeout. A process that waits for messages is counted only if no address of it is left, and
    /// no handle, link, monitor or name.
    LongWait,
    /// The number of processes in the group has grown from one look to the next, at least three
    /// times.
    Growth,
}

impl LeakSign {
    /// Returns the name of the sign.
    pub fn name(self) -> &'static str {
        match self {
            Self::LongWait => "long_wait",
            Self::Growth => "growth",
        }
    }
}

impl Leaks {
    /// Returns `true` if no process is known to be leaked. Some may be suspected.
    pub fn is_empty(&self) -> bool {
        self.leaked_total == 0
    }
}

/// Writes a line for each process and each group.
impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.leaked_total == 1 { "process is" } else { "processes are" };
        write!(f, "{} {plural} leaked", self.leaked_total)?;
        for leak in &self.leaked {
            write!(f, "\n  {leak}")?;
        }
        let others = self.leaked_total - self.leaked.len() as u64;
        if others > 0 {
            write!(f, "\n  and {others} more")?;
        }
        for suspicion in &self.suspected {
            write!(f, "\nsuspected: {suspicion}")?;
        }
        Ok(())
    }
}

/// Writes a label or, without one, the place of a spawn.
fn name(f: &mut fmt::Formatter<'_>, label: Option<&str>, spawned_at: &Location<'_>) -> fmt::Result {
    match label {
        Some(label) => write!(f, "({label})"),
        None => write!(f, "(spawned at {spawned_at})"),
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.pid)?;
        name(f, self.label.as_deref(), self.spawned_at)?;
        f.write_str(" waits ")?;
        if let Some(location) = self.location {
            write!(f, "at {location} ")?;
        }
        let (reason, what) = (self.reason, what_of(self.reason));
        match (self.cause, self.other) {
            (LeakCause::Process, Some(other)) if other == self.pid => write!(f, "for {what}itself"),
            (LeakCause::Process, Some(other)) => write!(f, "for {what}{other}, which is leaked"),
            (LeakCause::HolderEnded, Some(other)) => {
                write!(f, "for {what}{other}, which has ended with it")
            }
            (_, Some(other)) => {
                write!(f, "for a {reason}, and only {other} refers to it, which is leaked")
            }
            (_, None) => write!(f, "for a {reason}, and nothing refers to it"),
        }
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "process" } else { "processes" };
        write!(f, "{} {plural} ", self.count)?;
        name(f, self.label.as_deref(), self.spawned_at)?;
        let seconds = self.since.as_secs();
        match self.waiting {
            Some(waiting) => write!(f, " waiting for {waiting}, the longest for {seconds} s"),
            None => write!(f, ", {} more than {seconds} s ago", self.count - self.before),
        }
    }
}
