//! Processes of the operating system: other programs, with their input, output and exit status.
//!
//! [`Command`] and [`Child`] work like the types of the same name in [`std::process`], except that
//! a method that would wait returns a future. The pipes of a child are registered with the
//! scheduler, like sockets. The end of a child is an event of a descriptor as well (`pidfd`), so a
//! process that waits for a child takes no thread.
//!
//! ```
//! use procession::os_process::{Command, Stdio};
//!
//! procession::run(async {
//!     let output = Command::new("echo").arg("hello").output().await?;
//!     assert!(output.status.success());
//!     assert_eq!(output.stdout, b"hello\n");
//!
//!     let mut sorts = Command::new("sort").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//!     let mut input = sorts.stdin.take().expect("it is piped");
//!     input.write_all(b"two\none\n").await?;
//!     drop(input);
//!     assert_eq!(sorts.wait_with_output().await?.stdout, b"one\ntwo\n");
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Such a process is not a [process](crate::Pid) of this crate: it has no PID of a scheduler
//! and no mailbox.
//!
//! # How the end of a child is seen
//! [`Child::wait`] waits for a `pidfd`. If the system provides none (before Linux 5.3, below some
//! sandboxes, or without free descriptors), or the scheduler on which the child was started has
//! ended, a helper thread waits in `waitid` instead. A snapshot shows the process that waits: for a
//! readable descriptor, or for a pool, and the place of the call.
//!
//! # No zombies
//! The system keeps the status of a child that has ended until it is asked for, and the child is a
//! *zombie* until then. [`Child::wait`] and [`Child::try_wait`] ask for it. If a [`Child`] is
//! dropped before, its process continues, or is killed if [`Command::kill_on_drop`] says so. In
//! both cases one thread of the program asks for the status of all such children as soon as they
//! end. The thread is named `procession-reaper` and exists only while there are any.
//!
//! If the program ignores `SIGCHLD`, the system forgets the status of a child as soon as it ends,
//! and waiting for one is an error.
//!
//! # Fork
//! A program with threads must not call `fork` and then go on in the child. Only the calling thread
//! is in the child; the workers are not, and locks that others hold stay locked forever. So no
//! function of this crate may be called there, and nothing that allocates or locks. Only what
//! `signal-safety(7)` lists is allowed, and then `exec` or `_exit`. The same holds for the closures
//! of [`CommandExt::pre_exec`](std::os::unix::process::CommandExt::pre_exec). [`Command::spawn`]
//! keeps these rules. The descriptors of schedulers are closed in a child at `exec`.
//!
//! A program that turns itself into a daemon by `fork` has to do so before it builds a scheduler.

mod child;
mod command;
mod exit_wait;
mod pipe;
mod reaper;

pub use child::Child;
pub use command::Command;
pub use pipe::{ChildStderr, ChildStdin, ChildStdout};
/// How a process of the system has ended; the type of std.
pub use std::process::ExitStatus;
/// The result of [`Command::output`]; the type of std.
pub use std::process::Output;
/// The source of the input of a child, and the destination of its output; the type of std.
pub use std::process::Stdio;
