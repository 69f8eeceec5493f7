//! Reports of failures: what a process or a supervisor tells people about an end.
//!
//! A process that fails tells its links, its monitors and its handle. If nothing listens, the
//! failure is still reported. OTP's crash and supervisor reports are the model:
//!
//! ```text
//! procession: p1.42.7 "db" (name "db", async, spawned at src/main.rs:20:9) panicked: no disk
//! procession: p1.3.1 "tree" restarts "db" after p1.42.7 panicked: no disk (restart 2 of 3 in 5 s)
//! ```
//!
//! # What is reported
//!
//! | what | report | level of the event |
//! |---|---|---|
//! | a process ends by its own failure: a panic, an error, [`exit`](crate::exit()) with an abnormal [`Exit`], a full mailbox with [`WhenFull::Kill`], a state machine that waits for nothing, a coroutine without a stack | [`ExitReport`] | `ERROR` |
//! | a supervisor restarts a child | [`SupervisorReport`] | `WARN` |
//! | a child does not start, and the start is not tried again | [`SupervisorReport`] | `ERROR` |
//! | a supervisor gives up, because there were too many restarts | [`SupervisorReport`] | `ERROR` |
//! | a child is terminated, because it did not stop in time | [`SupervisorReport`] | `WARN` |
//!
//! A process that ends with [`Exit::Normal`], [`Exit::Shutdown`] or [`Exit::Killed`] is not
//! reported. Neither is one that ends because of another: by a link, an exit signal, a terminate, a
//! shutdown or a scope. A failure that takes 10 000 linked processes along is one report.
//!
//! Reports never contain messages or the state of a process. They contain the text of a panic or of
//! an error, so keep secrets out of those.
//!
//! # Where reports go
//!
//! 1. To the hooks of the scheduler, if they are set: [`Builder::on_exit`] and
//!    [`Builder::on_supervisor`]. Nothing is printed then, so `on_exit(|_| {})` is silence.
//! 2. Otherwise, with the feature `tracing` and a subscriber on the reporting thread, to that
//!    subscriber, as an event in the span of the process.
//! 3. Otherwise to standard error, as one line.
//!
//! A thread of its own writes the lines, so a slow or blocked standard error never blocks a worker.
//! The thread starts with the first line, and ends after a second without one. At most 10 lines are
//! written in a second; the rest is counted, and the count is written. Up to 256 lines wait while
//! standard error is slow. A line has at most 1 KiB, and control characters in it are escaped.
//!
//! At their ends, [`Scheduler::shutdown`], and [`run`](crate::run()), [`Scheduler::block_on`] and
//! [`JoinHandle::join`] on a thread outside all schedulers, wait until waiting lines are written,
//! for at most 100 ms. If standard error takes nothing for so long, they do not wait again until it
//! does.
//!
//! # What is kept
//!
//! A scheduler keeps the last 64 reports of failed processes, whether or not a hook receives them:
//! [`Scheduler::crashes`] returns them as [`CrashReport`]s. Each has at most 8 KiB.
//!
//! # Where a panic happened
//!
//! Only a panic hook learns that. By default, std's hook prints the place as usual, without the
//! process, and the report adds the process. [`install_panic_hook`] puts the place into the report
//! instead.
//!
//! [`Builder::on_exit`]: crate::Builder::on_exit
//! [`Builder::on_supervisor`]: crate::Builder::on_supervisor
//! [`Exit`]: crate::Exit
//! [`Exit::Normal`]: crate::Exit::Normal
//! [`Exit::Shutdown`]: crate::Exit::Shutdown
//! [`Exit::Killed`]: crate::Exit::Killed
//! [`JoinHandle::join`]: crate::JoinHandle::join
//! [`Scheduler::block_on`]: crate::Scheduler::block_on
//! [`Scheduler::crashes`]: crate::Scheduler::crashes
//! [`Scheduler::shutdown`]: crate::Scheduler::shutdown
//! [`WhenFull::Kill`]: crate::mailbox::WhenFull::Kill

pub(crate) mod crash_report;
pub(crate) mod exit_report;
pub(crate) mod failure;
pub(crate) mod hooks;
pub(crate) mod panics;
pub(crate) mod supervision;
pub(crate) mod supervisor_report;
pub(crate) mod text;
pub(crate) mod unseen;
pub(crate) mod writer;

pub use self::crash_report::{CrashReport, SupervisorAnswer};
pub use self::exit_report::ExitReport;
pub use self::panics::install_panic_hook;
pub use self::supervision::ChildExit;
pub use self::supervisor_report::{ChildFailure, SupervisorEvent, SupervisorReport};
pub use crate::process::unwind::catch_panic;
