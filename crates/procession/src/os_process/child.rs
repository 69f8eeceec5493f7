//! A process of the system that was started.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::process::{Child as StdChild, ExitStatus, Output};
use std::task::Poll;

use super::exit_wait::ExitWait;
use super::pipe::{ChildStderr, ChildStdin, ChildStdout, Pipe};
use super::reaper;
use crate::scheduler::placed::placed;

/// A process of the system. Made by [`Command::spawn`](super::Command::spawn).
///
/// If it is dropped before its end was seen, the process goes on, or is killed if
/// [`Command::kill_on_drop`](super::Command::kill_on_drop) says so. It never stays a zombie.
///
/// Its pipes belong to the scheduler on which it was started, as a
/// [socket](crate::net#which-scheduler-a-socket-belongs-to) does. [`wait`](Self::wait) works on any
/// scheduler. If the one of the start has ended, a helper thread waits.
#[derive(Debug)]
pub struct Child {
    /// The writing end of its standard input, if that is a pipe. Drop it, or close it, so that the
    /// process sees the end of its input.
    pub stdin: Option<ChildStdin>,
    /// The reading end of its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The reading end of its standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    started: ChildGuard,
}

impl Child {
    pub(super) fn new(mut child: StdChild, kill_on_drop: bool) -> io::Result<Self> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut started = ChildGuard {
            ends: ExitWait::of(&child),
            child: Some(child),
            // Without its pipes nothing could be done with it.
            kill_on_drop: true,
        };
        let (stdin, stdout, stderr) = (
            pipes.0.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            pipes.1.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            pipes.2.map(|pipe| Pipe::new(pipe.into())).transpose()?,
        );
        started.kill_on_drop = kill_on_drop;
        Ok(Self {
            stdin: stdin.map(ChildStdin::of),
            stdout: stdout.map(ChildStdout::of),
            stderr: stderr.map(ChildStderr::of),
            started,
        })
    }

    /// Returns the PID in the system, or `None` if the end of the process was seen: the system may
    /// use the number again then.
    pub fn id(&self) -> Option<u32> {
        self.started.id()
    }

    /// Waits for the end of the process. Closes its standard input first, since a process that
    /// waits for input would not end.
    ///
    /// # Errors
    /// Returns the system's error, for example if the program ignores `SIGCHLD`.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, nothing is lost, and the next call waits
    /// again.
    #[track_caller]
    pub fn wait(&mut self) -> impl Future<Output = io::Result<ExitStatus>> {
        placed(async move {
            drop(self.stdin.take());
            self.started.wait().await
        })
    }

    /// Returns the status if the process has ended.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let ChildGuard { child, ends, .. } = &mut self.started;
        ends.try_wait(child.as_mut().expect("there until the drop"))
    }

    /// Waits for the end of the process, and returns what it has written to those of its outputs
    /// that are pipes and were not taken. Closes its standard input first.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait), and the system's error of a pipe.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, so is the child.
    #[track_caller]
    pub fn wait_with_output(mut self) -> impl Future<Output = io::Result<Output>> {
        placed(async move {
            drop(self.stdin.take());
            let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
            let mut reads_stdout = pin!(read_all(stdout.as_ref().map(ChildStdout::pipe)));
            let mut reads_stderr = pin!(read_all(stderr.as_ref().map(ChildStderr::pipe)));
            let (mut stdout, mut stderr) = (None, None);
            // Both at once, since the process may wait for either to be read.
            poll_fn(|task| {
                if stdout.is_none()
                    && let Poll::Ready(read) = reads_stdout.as_mut().poll(task)
                {
                    stdout = Some(read?);
                }
                if stderr.is_none()
                    && let Poll::Ready(read) = reads_stderr.as_mut().poll(task)
                {
                    stderr = Some(read?);
                }
                let both = stdout.is_some() && stderr.is_some();
                if both { Poll::Ready(Ok(())) } else { Poll::Pending }
            })
            .await
            .map_err(|error: io::Error| error)?;
            let status = self.started.wait().await?;
            let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
            Ok(Output { status, stdout, stderr })
        })
    }

    /// Sends `SIGKILL`, without waiting. If the end of the process was seen, does nothing.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.started.std().kill()
    }

    /// Sends `SIGKILL`, and waits for the end of the process.
    ///
    /// # Errors
    /// Returns the errors of [`start_kill`](Self::start_kill) and of [`wait`](Self::wait).
    #[track_caller]
    pub fn kill(&mut self) -> impl Future<Output = io::Result<()>> {
        placed(async move {
            self.start_kill()?;
            self.wait().await.map(drop)
        })
    }
}

async fn read_all(pipe: Option<&Pipe>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// The process itself, which is dropped with its child.
struct ChildGuard {
    /// There until the drop.
    child: Option<StdChild>,
    ends: ExitWait,
    kill_on_drop: bool,
}

impl ChildGuard {
    fn std(&mut self) -> &mut StdChild {
        self.child.as_mut().expect("there until the drop")
    }

    fn id(&self) -> Option<u32> {
        let child = self.child.as_ref().expect("there until the drop");
        (!self.ends.is_seen()).then(|| child.id())
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let child = self.child.as_mut().expect("there until the drop");
        self.ends.wait(child).await
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if self.kill_on_drop {
            // Ignored: it has ended already.
            let _ = child.kill();
        }
        if matches!(child.try_wait(), Ok(None)) {
            reaper::adopt(child, self.ends.take_pidfd());
        }
    }
}

impl fmt::Debug for ChildGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildGuard")
            .field("id", &self.id())
            .field("kill_on_drop", &self.kill_on_drop)
            .finish()
    }
}
