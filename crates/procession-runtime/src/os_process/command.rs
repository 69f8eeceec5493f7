//! The description of a process of the system.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as StdCommand, ExitStatus, Output, Stdio};
use std::time::Duration;

use super::child::{Child, ChildOptions};
use crate::scheduler::placed::placed;
use crate::scheduler::section::Section;
use crate::sys::os;
use crate::sys::own_process::own_group;

/// Describes a process of the system, and starts it; like [`std::process::Command`].
///
/// If this type lacks a setting, build a [`std::process::Command`] and convert it, or use
/// [`as_std_mut`](Self::as_std_mut).
///
/// ```
/// use procession::os_process::Command;
///
/// procession::run(async {
///     // Without `kill_on_drop`, the program goes on if this future is dropped, as by a timeout.
///     let mut greets = Command::new("sh");
///     greets.arg("-c").arg("echo hello, $NAME").env("NAME", "Ada").kill_on_drop(true);
///     let output = greets.output().await?;
///     assert!(output.status.success());
///     assert_eq!(output.stdout, b"hello, Ada\n");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Command {
    std: StdCommand,
    options: ChildOptions,
    /// The process group that the caller has set.
    group: Option<i32>,
    /// The streams that the caller has set.
    set: SetStreams,
}

#[derive(Clone, Copy, Debug, Default)]
struct SetStreams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Command {
    /// Describes a process that runs `program`, without arguments. A name without `/` is looked up
    /// in the `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self::from(StdCommand::new(program))
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.std.arg(arg);
        self
    }

    /// Adds several arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Self {
        self.std.args(args);
        self
    }

    /// Sets the name by which the program sees itself called. Default: the program.
    pub fn arg0(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.std.arg0(name);
        self
    }

    /// Sets a variable of the environment. Default: the environment of this program.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.std.env(name, value);
        self
    }

    /// Sets several variables of the environment.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        self.std.envs(variables);
        self
    }

    /// Removes a variable from the environment.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.std.env_remove(name);
        self
    }

    /// Removes all variables from the environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.std.env_clear();
        self
    }

    /// Sets the directory in which the process starts. Default: the directory of this program.
    pub fn current_dir(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.std.current_dir(path);
        self
    }

    /// Sets the standard input. Default: the standard input of this program; for
    /// [`output`](Self::output), no input.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.set.stdin = true;
        self.std.stdin(stdin);
        self
    }

    /// Sets the standard output. Default: the standard output of this program; for
    /// [`output`](Self::output), a pipe.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.set.stdout = true;
        self.std.stdout(stdout);
        self
    }

    /// Sets the standard error. Default: the standard error of this program; for
    /// [`output`](Self::output), a pipe.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.set.stderr = true;
        self.std.stderr(stderr);
        self
    }

    /// Sets the user of the process.
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.std.uid(id);
        self
    }

    /// Sets the group of the process.
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.std.gid(id);
        self
    }

    /// Sets the process group. 0 makes a new group, with the PID of the process. Signals of the
    /// terminal, such as Ctrl-C, go to one group. Default: the group of this program.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.group = Some(group);
        self.std.process_group(group);
        self
    }

    /// Sets whether the process is killed (`SIGKILL`) when its [`Child`] is dropped before its end
    /// was seen. Default: `false`.
    ///
    /// If a process of a scheduler is terminated, its values are dropped, so its children end with
    /// it. The children of these children continue, unless [`kill_group`](Self::kill_group) is set.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.options.kill_on_drop = kill;
        self
    }

    /// Sets whether the processes that the process starts end with it. Default: `false`.
    ///
    /// The process then leads a new [process group](Self::process_group), to which its descendants
    /// also belong. The whole group is killed (`SIGKILL`) by [`Child::kill`] and
    /// [`Child::start_kill`], by the drop for [`kill_on_drop`](Self::kill_on_drop), and when the
    /// end of the process is seen by [`Child::wait`] or its siblings. A program that starts another
    /// in the background and ends therefore takes the other with it.
    ///
    /// A descendant that leaves the group by `setsid` or `setpgid`, as daemons and the jobs of an
    /// interactive shell do, is not killed. Only the system can find such a process: start the
    /// program in a PID namespace, which ends as a whole (`unshare --pid --fork --kill-child`), or
    /// in a control group with a file `cgroup.kill`. `PR_SET_CHILD_SUBREAPER` would not help: it
    /// makes your program the parent of all orphans below it, but does not say which child they
    /// came from, and it holds for the whole program.
    ///
    /// A separate group is in the background of a terminal: Ctrl-C does not reach it, and a read
    /// from the terminal stops it.
    ///
    /// ```
    /// use procession::os_process::Command;
    ///
    /// procession::run(async {
    ///     // The shell ends, but would leave a process that has its output.
    ///     let script = "sleep 1000 & echo started";
    ///     let output = Command::new("sh").args(["-c", script]).kill_group(true).output().await?;
    ///     assert_eq!(output.stdout, b"started\n");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_group(&mut self, kill: bool) -> &mut Self {
        self.options.kill_group = kill;
        self
    }

    /// Sets how long [`output`](Self::output) and [`Child::wait_with_output`] wait for the ends of
    /// the pipes after the end of the process, like `WaitDelay` in Go. Default: without limit.
    ///
    /// A pipe is open for as long as any process has it, for example a process that the child has
    /// left in the background. After the delay, the output is what was written so far, which
    /// includes everything that the child itself has written. On a test clock the delay is never
    /// over, because the clock stands still while a pipe is waited for.
    pub fn wait_delay(&mut self, delay: Duration) -> &mut Self {
        self.options.wait_delay = Some(delay);
        self
    }

    /// Returns the description as one of std.
    pub fn as_std(&self) -> &StdCommand {
        &self.std
    }

    /// Returns the description as one of std, to change it. For [`output`](Self::output), a stream
    /// that is set there counts as not set. [`kill_group`](Self::kill_group) replaces a process
    /// group that is set there.
    pub fn as_std_mut(&mut self) -> &mut StdCommand {
        &mut self.std
    }

    /// Starts the process.
    ///
    /// # Errors
    /// Returns the errors of [`std::process::Command::spawn`]. Returns the system's error if a pipe
    /// cannot be registered; the process is killed then. Returns
    /// [`Unsupported`](io::ErrorKind::Unsupported) on a simulated system.
    ///
    /// # Blocking
    /// Blocks until the process has begun to run its program, usually for less than 1 ms. In a
    /// process, this is a [blocking section](crate::blocking()).
    pub fn spawn(&mut self) -> io::Result<Child> {
        if os::here().is_some() {
            let text = "cannot start a process of the system on a simulated one";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if self.options.kill_group {
            self.std.process_group(0);
        }
        let spawned = {
            let _section = Section::enter();
            self.std.spawn()
        };
        if self.options.kill_group {
            // `std` keeps the new group for a later call without `kill_group`, and cannot forget
            // that there is one. The group of this program is what a child has otherwise.
            let group = self.group.unwrap_or_else(own_group);
            self.std.process_group(group);
        }
        Child::new(spawned?, self.options)
    }

    /// Starts the process, and waits for its end.
    ///
    /// # Errors
    /// Returns the errors of [`spawn`](Self::spawn) and of [`Child::wait`].
    ///
    /// # Cancellation
    /// The process starts immediately. If the future is dropped before it completes, the process
    /// continues, or is killed if [`kill_on_drop`](Self::kill_on_drop) says so.
    #[track_caller]
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        let spawned = self.spawn();
        placed(async move {
            let mut child = spawned?;
            // The other ends of pipes would keep the child from ending.
            drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
            child.wait().await
        })
    }

    /// Starts the process, and collects what it writes until its end.
    ///
    /// # Errors
    /// Returns the errors of [`spawn`](Self::spawn) and of [`Child::wait_with_output`].
    ///
    /// # Cancellation
    /// As for [`status`](Self::status).
    #[track_caller]
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        if !self.set.stdin {
            self.std.stdin(Stdio::null());
        }
        if !self.set.stdout {
            self.std.stdout(Stdio::piped());
        }
        if !self.set.stderr {
            self.std.stderr(Stdio::piped());
        }
        let spawned = self.spawn();
        // A later `status` does not use the pipes.
        if !self.set.stdin {
            self.std.stdin(Stdio::inherit());
        }
        if !self.set.stdout {
            self.std.stdout(Stdio::inherit());
        }
        if !self.set.stderr {
            self.std.stderr(Stdio::inherit());
        }
        placed(async move { spawned?.wait_with_output().await })
    }
}

/// Takes all settings. For [`Command::output`], streams count as not set.
impl From<StdCommand> for Command {
    fn from(std: StdCommand) -> Self {
        Self { std, options: ChildOptions::default(), group: None, set: SetStreams::default() }
    }
}
