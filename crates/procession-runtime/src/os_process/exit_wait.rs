//! Waiting for the end of a process of the system.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child as StdChild, ExitStatus};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use crate::net::io::{Io, IoResult, Side};
use crate::pool::program::ProgramPool;
use crate::pool::{JobError, JobHandle};
use crate::scheduler::budget;
use crate::sys::system::exit_handle;

/// Threads that wait for processes without a handle. They are apart from other helpers, since a
/// process may run for long.
static WAITERS: ProgramPool = ProgramPool::new("children");

/// The event of the end of a process. The status itself is always asked for by the child of std,
/// which never touches a PID again after that.
pub(super) struct ExitWait {
    event: ExitEvent,
    seen: bool,
    /// The child leads a process group, which ends with it.
    with_group: bool,
}

enum ExitEvent {
    Handle(Io<OwnedFd>),
    /// A helper thread, once a process waits.
    Helper(Option<JobHandle<io::Result<()>>>),
}

fn pid(child: &StdChild) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

impl ExitWait {
    pub(super) fn of(child: &StdChild, with_group: bool) -> Self {
        let handle = pid(child)
            .and_then(|pid| exit_handle::open(pid).ok())
            .and_then(|handle| Io::new(handle).ok());
        let event = handle.map_or(ExitEvent::Helper(None), ExitEvent::Handle);
        Self { event, seen: false, with_group }
    }

    /// Returns `true` if the status was returned, and the PID may belong to another process.
    pub(super) fn is_seen(&self) -> bool {
        self.seen
    }

    pub(super) fn try_wait(&mut self, child: &mut StdChild) -> io::Result<Option<ExitStatus>> {
        ask(child, self.with_group, &mut self.seen)
    }

    /// Sends `SIGKILL` to the child, and to the group that it leads, unless its end was seen.
    pub(super) fn kill(&self, child: &mut StdChild) -> io::Result<()> {
        if self.with_group && !self.seen {
            kill_group(child);
        }
        child.kill()
    }

    /// Sends `SIGTERM` to the child, or to the whole group that it leads, unless its end was seen.
    pub(super) fn terminate(&self, child: &StdChild) -> io::Result<()> {
        // Until its end is seen, the child keeps its PID, and that of its group.
        let Some(pid) = pid(child).filter(|_| !self.seen) else { return Ok(()) };
        let send = if self.with_group { kill_process_group } else { kill_process };
        Ok(send(pid, Signal::TERM)?)
    }

    pub(super) async fn wait(&mut self, child: &mut StdChild) -> io::Result<ExitStatus> {
        // The status may be known already.
        budget::charged().await;
        loop {
            if let Some(status) = self.try_wait(child)? {
                return Ok(status);
            }
            let (with_group, seen) = (self.with_group, &mut self.seen);
            match &mut self.event {
                ExitEvent::Handle(handle) => {
                    let ended = |_: &OwnedFd| match ask(child, with_group, seen)? {
                        Some(_) => Ok(IoResult::whole(())),
                        None => Err(io::ErrorKind::WouldBlock.into()),
                    };
                    if let Err(error) = handle.run(Side::Read, ended).await {
                        if !handle.shared().lifetime.has_ended() {
                            return Err(error);
                        }
                        // Nothing polls for the descriptor any more.
                        self.event = ExitEvent::Helper(None);
                    }
                }
                ExitEvent::Helper(job) => {
                    let running = match job {
                        Some(running) => running,
                        None => job.insert(wait_on_helper(child)?),
                    };
                    let waited = running.await;
                    *job = None;
                    waited.map_err(io::Error::other)??;
                }
            }
        }
    }

    /// Takes the descriptor, to wait for the process elsewhere.
    pub(super) fn take_handle(&mut self) -> Option<OwnedFd> {
        match std::mem::replace(&mut self.event, ExitEvent::Helper(None)) {
            ExitEvent::Handle(handle) => Some(handle.into_inner()),
            ExitEvent::Helper(_) => None,
        }
    }
}

/// Asks for the status of a child, and notes whether it was `seen`. A child that has ended is a
/// zombie until then, which keeps the number of its group in use. So this is the moment to end what
/// is left of the group.
fn ask(child: &mut StdChild, with_group: bool, seen: &mut bool) -> io::Result<Option<ExitStatus>> {
    if with_group
        && !*seen
        && let Some(pid) = pid(child)
    {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), options) {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => kill_group(child),
            // Other code has asked for the status. The child of std reports this.
            Err(_) => {}
        }
    }
    let status = child.try_wait()?;
    *seen |= status.is_some();
    Ok(status)
}

/// Sends `SIGKILL` to the group of a child that leads a group, if nobody has asked for the status
/// of the child.
fn kill_group(child: &StdChild) {
    if let Some(group) = pid(child) {
        // Ignored: either no process is left, or the remaining processes belong to another user.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Waits on a thread. The process stays a zombie until the child of std asks for its status, so its
/// PID is not used again.
fn wait_on_helper(child: &StdChild) -> io::Result<JobHandle<io::Result<()>>> {
    let Some(pid) = pid(child) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let waits = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(pid), options) {
                Err(Errno::INTR) => {}
                // Other code has asked for the status. The child of std reports this.
                Err(Errno::CHILD) => return Ok(()),
                waited => return Ok(waited.map(drop)?),
            }
        }
    };
    WAITERS.submit(waits).map_err(|_| io::Error::other(JobError::Refused))
}

#[cfg(test)]
mod tests;
