//! The report of a cycle of waits.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::Pid;
use crate::process::shown_waits::WaitReason;

/// Processes that wait for one another, so that none of them continues unless another process or
/// thread ends one of them.
///
/// Each process waits for the next one, and the last process waits for the first. A process that
/// waits for itself is a cycle of one. For example, it locks a mutex twice, or it waits for a lock
/// for which a future of its own, which it no longer polls, stands in line before (a *futurelock*).
///
/// A cycle is made only of waits that nothing else ends:
///
/// - for a lock that one process holds: a [`Mutex`](crate::sync::Mutex), or an
///   [`RwLock`](crate::sync::RwLock)
/// - for the turn to read an `RwLock`, behind a process that waits to write
/// - for the end of a process, by its handle or by [`down`](crate::Context::down)
/// - for room in a bounded mailbox
/// - for the reply to a call without a timeout ([`Duration::MAX`]) that the callee has not received
///
/// A process waits if its future does, or if its step blocks on a future
/// ([`block_on`](crate::Scheduler::block_on)) of the same scheduler.
///
/// A process that waits for several things at the same time, with a timeout, or with a waker that
/// code outside of the runtime has cloned, is in no cycle. Also unknown are the holder of a guard
/// of `lock_owned`, and the process that replies to a call that was received, because a program may
/// give these to other processes; several readers of a lock; and the process that ends a wait for
/// permits, because each process that shares a semaphore may
/// [add](crate::sync::Semaphore::add_permits) some. A guard of a lock in a `static` counts as held
/// by the process that has taken it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitCycle {
    /// The waits, in the order of the cycle. The first is of the process with the lowest slot.
    pub waits: Vec<CyclicWait>,
}

/// A wait in a cycle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CyclicWait {
    /// The process that waits.
    pub pid: Pid,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// What it waits for.
    pub reason: WaitReason,
    /// Where it waits, as in [`ProcessInfo::wait`](super::process_info::ProcessInfo::wait).
    pub location: Option<&'static Location<'static>>,
    /// The process that it waits for. For a lock, this is the holder or, if a reader waits only for
    /// its turn, the process that is first in line.
    pub target: Pid,
    /// The least time for which it has waited.
    pub at_least: Duration,
}

impl WaitCycle {
    /// Returns the least time for which the cycle has stood.
    pub fn at_least(&self) -> Duration {
        self.waits.iter().map(|wait| wait.at_least).min().unwrap_or_default()
    }
}

impl fmt::Display for WaitCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.waits.len();
        let plural = if count == 1 { "process waits" } else { "processes wait" };
        write!(f, "{count} {plural} in a cycle since {} ms: ", self.at_least().as_millis())?;
        for (at, wait) in self.waits.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{wait}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CyclicWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)?;
        match &self.label {
            Some(label) => write!(f, " ({label})")?,
            None => write!(f, " (spawned at {})", self.spawned_at)?,
        }
        write!(f, " waits for {}{}", what_of(self.reason), self.target)?;
        match self.location {
            Some(location) => write!(f, " at {location}"),
            None => Ok(()),
        }
    }
}

/// Returns the words between "waits for" and a process.
pub(crate) fn what_of(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Lock => "a lock of ",
        WaitReason::Process => "the end of ",
        WaitReason::Reply => "a reply of ",
        WaitReason::Room => "room in the mailbox of ",
        _ => "",
    }
}
