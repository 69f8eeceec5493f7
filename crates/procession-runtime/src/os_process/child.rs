//! A process of the system that was started.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::process::{Child as StdChild, ExitStatus, Output};
use std::task::Poll;
use std::time::Duration;

use super::exit_wait::ExitWait;
use super::pipe::{ChildStderr, ChildStdin, ChildStdout, Pipe};
use super::reaper;
use crate::scheduler::placed::placed;
use crate::time::sleep;

/// A process of the system. Made by [`Command::spawn`](super::Command::spawn).
///
/// If it is dropped before its end was seen, the process continues, or is killed if
/// [`Command::kill_on_drop`](super::Command::kill_on_drop) says so. It never stays a zombie.
///
/// Its pipes belong to the scheduler on which it was started, as a
/// [socket](crate::net#which-scheduler-a-socket-belongs-to) does. [`wait`](Self::wait) works on any
/// scheduler. If the scheduler of the start has ended, a helper thread waits.
#[derive(Debug)]
pub struct Child {
    /// The writing end of its standard input, if that is a pipe. Drop or close it, because
    /// otherwise the process never sees the end of its input.
    pub stdin: Option<ChildStdin>,
    /// The reading end of its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The reading end of its standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    started: ChildGuard,
}

impl Child {
    pub(super) fn new(mut child: StdChild, options: ChildOptions) -> io::Result<Self> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut started = ChildGuard {
            ends: ExitWait::of(&child, options.kill_group),
            child: Some(child),
            // Without its pipes nothing could be done with it.
            options: ChildOptions { kill_on_drop: true, ..options },
        };
        let (stdin, stdout, stderr) = (
            pipes.0.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            pipes.1.map(|pipe| Pipe::new(pipe.into())).transpose()?,
            pipes.2.map(|pipe| Pipe::new(pipe.into())).transpose()?,
        );
        started.options = options;
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

    /// Waits for the end of the process, and returns what it has written to its outputs, if they
    /// are pipes and were not taken. Closes its standard input first.
    ///
    /// Each pipe is read to its end, which is reached when the last process that has the pipe ends
    /// or closes it. If the child has started others that live on, that may be long after its own
    /// end. To limit the wait, set [`Command::wait_delay`](super::Command::wait_delay) or
    /// [`Command::kill_group`](super::Command::kill_group).
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
            let stdout = stdout.as_ref().map(ChildStdout::pipe);
            let stderr = stderr.as_ref().map(ChildStderr::pipe);
            let delay = self.started.options.wait_delay;
            let (mut out, mut err, mut status) = (Vec::new(), Vec::new(), None);
            let is_whole = {
                let mut waits = pin!(self.started.wait());
                let mut reads_stdout = pin!(read_all(stdout, &mut out));
                let mut reads_stderr = pin!(read_all(stderr, &mut err));
                let (mut read_stdout, mut read_stderr, mut late) = (false, false, None);
                // All concurrently, because the process may wait for either pipe to be read, and
                // the delay begins with its end.
                poll_fn(|task| {
                    if status.is_none()
                        && let Poll::Ready(ended) = waits.as_mut().poll(task)
                    {
                        status = Some(ended?);
                        late = delay.map(sleep);
                    }
                    if !read_stdout && let Poll::Ready(read) = reads_stdout.as_mut().poll(task) {
                        read_stdout = read.map(|()| true)?;
                    }
                    if !read_stderr && let Poll::Ready(read) = reads_stderr.as_mut().poll(task) {
                        read_stderr = read.map(|()| true)?;
                    }
                    if status.is_some() && read_stdout && read_stderr {
                        return Poll::Ready(Ok::<_, io::Error>(true));
                    }
                    match &mut late {
                        Some(late) => Pin::new(late).poll(task).map(|()| Ok(false)),
                        None => Poll::Pending,
                    }
                })
                .await?
            };
            if !is_whole {
                // What the child has written was in the pipes when it ended.
                stdout.inspect(|pipe| pipe.read_available(&mut out));
                stderr.inspect(|pipe| pipe.read_available(&mut err));
            }
            let status = status.expect("the wait has ended, or begun to be limited by the delay");
            Ok(Output { status, stdout: out, stderr: err })
        })
    }

    /// Sends `SIGKILL`, without waiting, to the whole group of the process if
    /// [`Command::kill_group`](super::Command::kill_group) says so. If the end of the process was
    /// seen, does nothing.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.started.kill()
    }

    /// Sends `SIGTERM`, which asks a program to end, to the process, or to its whole group if
    /// [`Command::kill_group`](super::Command::kill_group) says so. If the end of the process was
    /// seen, does nothing. Use [`timeout`](crate::timeout()) around [`wait`](Self::wait), and then
    /// [`kill`](Self::kill), for a program that may not obey.
    ///
    /// ```
    /// use procession::os_process::Command;
    ///
    /// procession::run(async {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     child.terminate()?;
    ///     assert!(!child.wait().await?.success());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.started.terminate()
    }

    /// Sends `SIGKILL` as [`start_kill`](Self::start_kill) does, and waits for the end of the
    /// process.
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

async fn read_all(pipe: Option<&Pipe>, bytes: &mut Vec<u8>) -> io::Result<()> {
    match pipe {
        Some(pipe) => pipe.read_to_end(bytes).await,
        None => Ok(()),
    }
}

/// What [`Command`](super::Command) says beyond std's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChildOptions {
    pub(super) kill_on_drop: bool,
    /// The child leads a group, and the group ends with it.
    pub(super) kill_group: bool,
    pub(super) wait_delay: Option<Duration>,
}

/// The process itself, which is dropped with its child.
struct ChildGuard {
    /// There until the drop.
    child: Option<StdChild>,
    ends: ExitWait,
    options: ChildOptions,
}

impl ChildGuard {
    fn kill(&mut self) -> io::Result<()> {
        self.ends.kill(self.child.as_mut().expect("there until the drop"))
    }

    fn terminate(&self) -> io::Result<()> {
        self.ends.terminate(self.child.as_ref().expect("there until the drop"))
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
        if self.options.kill_on_drop {
            // Ignored: it has ended already.
            let _ = self.ends.kill(&mut child);
        }
        if matches!(child.try_wait(), Ok(None)) {
            reaper::adopt(child, self.ends.take_handle());
        }
    }
}

impl fmt::Debug for ChildGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildGuard")
            .field("id", &self.id())
            .field("options", &self.options)
            .finish()
    }
}
