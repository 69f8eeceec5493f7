//! Which failures of a process are worth a report, and reports that wait until it is known whether
//! the failure has reached somebody.
//!
//! # Held report protocol
//!
//! ## Problem
//! A failure that somebody learns of is not reported. But the process that fails cannot know that:
//! its handle may be dropped a moment later, and its monitor may be ended.
//!
//! ## States
//! The report of a process that may be heard is *held* in its slot, under a lock. It is `Unsettled`
//! until the end of the process has notified its monitors and links, and `Settled` from then on.
//! `HandleGone` is `Unsettled` without a handle.
//!
//! The report of a supervised process is *owed* by its supervisor instead (`report/owed.rs`), which
//! learns of the end and decides what to do.
//!
//! ## Steps
//! The end of the process:
//! - `Hold` the report, if the process has a handle, a monitor or a link to a process that traps
//!   exits. Otherwise the report is emitted now, before anybody can learn of the end.
//! - `Complete` and `Settle` of `relations/on_exit.rs`.
//! - `Decide`: if a monitor or a link was notified, drops the report. Otherwise, if the handle is
//!   gone, emits the report. Otherwise the report is `Settled`.
//!
//! The handle:
//! - `Take` the result: drops the report.
//! - `Leave`, if the handle is dropped after `Complete` and without the result: if the report is
//!   `Settled`, emits the report. If it is `Unsettled`, it becomes `HandleGone`.
//!
//! The supervisor `Takes` what is owed when it learns of an end. Its own end takes the rest.
//!
//! ## Why it works
//! `Hold` is before `Complete`, and `Take` and `Leave` of a complete process are after it. So the
//! handle finds the report, unless `Decide` has taken it out. If the handle is dropped before
//! `Complete`, `Complete` says so. All steps that emit the report take it out under the lock, so it
//! is emitted at most once. A report that is left in the slot has a handle, and the handle takes it
//! out. A supervisor that ends refuses further reports under the lock under which it takes the
//! rest.
//!
//! ## Allowed
//! A monitor that is made between `Hold` and `Complete` is notified, although the failure is
//! reported. If the handle is dropped at the moment of the end, the end is counted before `Decide`,
//! so a shutdown may return before the report is emitted.
//!
//! ## Checked by
//! `tests/it/reports/reached.rs`. All shared state is plain data under one lock, so there is no
//! model.

use std::fmt;

use procession_sync::Mutex;

use crate::Exit;

/// The level of a report. The names and their order are taken from the crate `tracing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReportLevel {
    /// Goes to hooks and to subscribers of `tracing`, and is not printed.
    Debug,
    /// Is printed, like the two higher levels.
    Info,
    /// Something to look at soon.
    Warn,
    /// Something to look at now.
    Error,
}

impl fmt::Display for ReportLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        })
    }
}

/// Decides which failures of a process are worth a report, and at which level.
///
/// [`SpawnOptions::reporting`] sets it for one process, [`ChildSpec::reporting`] and
/// [`Template::reporting`] for the processes of a child, and [`Builder::reporting`] for all other
/// processes of a scheduler. A process does not inherit it from the process that spawns it. The
/// rules follow below.
///
/// [`SpawnOptions::reporting`]: crate::SpawnOptions::reporting
/// [`ChildSpec::reporting`]: crate::supervisor::ChildSpec::reporting
/// [`Template::reporting`]: crate::supervisor::Template::reporting
/// [`Builder::reporting`]: crate::Builder::reporting
///
/// ```
/// use procession::observe::{ReportLevel, Reporting};
/// use procession::supervisor::Template;
/// use procession::{Context, Exit};
///
/// // A connection may fail, but a panic is a defect.
/// let connections = Reporting::new().failures(ReportLevel::Info);
/// let template = Template::new(|_: Context<()>, number: u32| async move {
///     if number == 13 { Err(Exit::failed("unlucky")) } else { Ok(()) }
/// });
/// drop(template.reporting(connections));
/// ```
///
/// # Reports of failures
///
/// A process that fails notifies its handle, its links and its monitors. If there is none to
/// notify, the failure is reported, so that no process dies in silence. OTP's crash and supervisor
/// reports are the model. By default a report is a line on standard error:
///
/// ```text
/// procession: p1.42.7 "cache" failed: no room
/// procession: p1.3.1 "tree" restarts p1.43.2 "db", which panicked: no disk (restart 2 of 3 in 5 s)
/// ```
///
/// # What is reported
///
/// | what | report | level |
/// |---|---|---|
/// | a process panics | [`ExitReport`] | `ERROR` |
/// | a process fails | [`ExitReport`] | `ERROR` |
/// | a process ends with [`Exit::Disconnected`] | [`ExitReport`] | `DEBUG` |
/// | a supervisor restarts a child that has failed | [`SupervisorReport`] | `ERROR` |
/// | it restarts a child that disconnected or ended in order | [`SupervisorReport`] | `WARN` |
/// | a child does not start, and the requester has gone | [`SupervisorReport`] | `ERROR` |
/// | a transient child is not restarted: its name is taken | [`SupervisorReport`] | `ERROR` |
/// | a supervisor ends, because it exceeds its restart limit | [`SupervisorReport`] | `ERROR` |
/// | a child is terminated, because it did not stop in time | [`SupervisorReport`] | `WARN` |
///
/// The failure of a process is reported only if it reaches nobody, as the next section explains. A
/// process *fails* if it returns an error, calls [`exit`](crate::exit()) with an abnormal [`Exit`],
/// or has a full mailbox with [`WhenFull::Kill`]. A state machine that waits for nothing fails, and
/// so does a coroutine that gets no stack. [`Exit::Disconnected`] means that the peer of the
/// process has gone, or was silent for longer than allowed. The name of a transient child can be a
/// unique key.
///
/// A process that ends with [`Exit::Normal`], [`Exit::Shutdown`] or [`Exit::Killed`] is not
/// reported. A process that ends because another has ended is not reported either: it ends by a
/// link, an exit signal, a terminate, a shutdown or a scope. For example, a failure that takes
/// 10 000 linked processes along is one report.
///
/// Reports never contain messages or the state of a process. They contain the text of a panic or of
/// an error, so keep secrets out of panics and errors.
///
/// # When a failure has reached somebody
///
/// A failure has reached
///
/// - a [`JoinHandle`] or [`Child`], if its result is taken: the handle is awaited or joined, before
///   or after the end. If the handle is dropped without that, the failure is reported at the drop
///   or at the end, whichever is later.
/// - a monitor, if its process lives when the monitored process ends, and has not ended the
///   monitor.
/// - a link, if the other process lives and traps exits. A process that does not trap exits ends as
///   well, and learns nothing.
/// - a supervisor, if it restarts the child or ends, and reports that itself. If the supervisor
///   does nothing about the failure, the failure is reported as if there were no supervisor. For
///   example, a temporary child fails, or a child that is being stopped.
///
/// A handle that your program keeps and never awaits is the exception: the failure waits for you in
/// the handle, and nothing is reported. So do not keep a handle that you do not await: detach the
/// process, or let a supervisor start it. Whatever is reported, the scheduler keeps the failure.
///
/// A panic leaves at least one line in any case, because std's panic hook prints every panic.
/// [`install_panic_hook`] keeps std's hook silent, and the report takes its place: with this hook,
/// a panic is reported even if it has reached a handle, a monitor or a link.
///
/// # What is worth a report
///
/// `Reporting` is the choice of the program. It sets the level of panics, of other failures and
/// of lost connections, or that they are not reported, and whether failures that have reached
/// somebody are reported anyway. [`Builder::reporting`] sets it for a scheduler,
/// [`SpawnOptions::reporting`] for a process, and [`ChildSpec::reporting`] and
/// [`Template::reporting`] for a child.
///
/// # Where reports go
///
/// 1. To the hooks of the scheduler, if they are set: [`Builder::on_exit`] and
///    [`Builder::on_supervisor`]. Nothing is printed then.
/// 2. Otherwise, with the feature `tracing` and a subscriber on the reporting thread, to that
///    subscriber, as an event with the target `procession` and the level of the report.
/// 3. Otherwise to standard error, as one line, if the level is `INFO` or higher.
///
/// What is reported does not depend on where it goes.
///
/// A separate thread writes the lines, so a slow or blocked standard error never blocks a worker.
/// The thread starts with the first line, and ends after a second without a line. At most 10 lines
/// are written in a second; the rest is counted, and the count is written. Up to 256 lines wait
/// while standard error is slow. A line has at most 1 KiB, and control characters in it are
/// escaped.
///
/// At their ends, [`Scheduler::shutdown`], and [`run`](crate::run()), [`Scheduler::block_on`] and
/// [`JoinHandle::join`] on a thread outside all schedulers, wait until waiting lines are written,
/// for at most 100 ms. If standard error takes nothing for so long, they do not wait again until it
/// does.
///
/// # How a report names a process
///
/// By its PID, and by its label, or else by its name, or else by the place where it was spawned.
/// The alternate form `{:#}` of an [`ExitReport`] has the label, the name and the place. A child of
/// a supervisor that has no label is named by its id.
///
/// With `tracing`, the span `process` of each process has the fields `pid` and `label`, and the
/// level `DEBUG`, so a log of the level `INFO` does not repeat them in each line of a handler. A
/// report is an event in that span. If the span is not open, the event has the fields `pid` and
/// `label`. A subscriber that takes the level `TRACE` for the target `procession` also receives the
/// place of the spawn, the kind, the parent and the figures of the process. For example,
/// `RUST_LOG=info,procession=trace` shows the places.
///
/// # What is kept
///
/// A scheduler keeps the last 64 failures, whether or not they are reported, as
/// [`CrashReport`]s: [`Scheduler::crashes`] returns them. Each has at most 8 KiB. A process that
/// has lost its connection is not kept, because clients that leave would push out the failures.
///
/// # Where a panic happened
///
/// Only a panic hook learns that. By default, std's hook prints the place as usual, without the
/// process, and the report adds the process. [`install_panic_hook`] puts the place into the report
/// instead.
///
/// [`Child`]: crate::Child
/// [`JoinHandle`]: crate::JoinHandle
/// [`Exit::Disconnected`]: crate::Exit::Disconnected
/// [`Builder::on_exit`]: crate::Builder::on_exit
/// [`Builder::on_supervisor`]: crate::Builder::on_supervisor
/// [`Exit`]: crate::Exit
/// [`Exit::Normal`]: crate::Exit::Normal
/// [`Exit::Shutdown`]: crate::Exit::Shutdown
/// [`Exit::Killed`]: crate::Exit::Killed
/// [`JoinHandle::join`]: crate::JoinHandle::join
/// [`Scheduler::block_on`]: crate::Scheduler::block_on
/// [`Scheduler::crashes`]: crate::Scheduler::crashes
/// [`Scheduler::shutdown`]: crate::Scheduler::shutdown
/// [`WhenFull::Kill`]: crate::mailbox::WhenFull::Kill
/// [`ExitReport`]: crate::report::ExitReport
/// [`SupervisorReport`]: crate::report::SupervisorReport
/// [`CrashReport`]: crate::report::CrashReport
/// [`install_panic_hook`]: crate::report::install_panic_hook
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reporting {
    panics: Option<ReportLevel>,
    failures: Option<ReportLevel>,
    disconnects: Option<ReportLevel>,
    always: bool,
}

impl Reporting {
    /// Reports panics and failures as errors, and connections that the other side has ended at the
    /// level `DEBUG`. This is the default.
    pub const fn new() -> Self {
        Self {
            panics: Some(ReportLevel::Error),
            failures: Some(ReportLevel::Error),
            disconnects: Some(ReportLevel::Debug),
            always: false,
        }
    }

    /// Reports nothing. The last failures are still kept
    /// ([`Scheduler::crashes`](crate::Scheduler::crashes)).
    pub const fn nothing() -> Self {
        Self { panics: None, failures: None, disconnects: None, always: false }
    }

    /// Sets the level of panics. With `None`, they are not reported.
    pub fn panics(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.panics = level.into();
        self
    }

    /// Sets the level of all failures except panics and disconnects. With `None`, they are not
    /// reported.
    pub fn failures(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.failures = level.into();
        self
    }

    /// Sets the level of [`Exit::Disconnected`]. With `None`, it is not reported.
    pub fn disconnects(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.disconnects = level.into();
        self
    }

    /// Also reports a failure that has reached a handle, a monitor, a link or a supervisor.
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Returns the level of failures that are neither panics nor disconnects.
    pub(crate) fn level_of_failures(self) -> Option<ReportLevel> {
        self.failures
    }

    /// Returns the level at which this exit is reported, or `None` if it is not worth a report.
    pub(crate) fn level_of(self, exit: &Exit) -> Option<ReportLevel> {
        match exit {
            Exit::Normal | Exit::Shutdown | Exit::Killed => None,
            Exit::Panicked(_) => self.panics,
            Exit::Disconnected(_) => self.disconnects,
            _ => self.failures,
        }
    }

    pub(crate) fn is_always(self) -> bool {
        self.always
    }
}

impl Default for Reporting {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldPhase {
    Unsettled,
    HandleGone,
    Settled,
}

/// Emits a report about the process in the slot `S`.
pub(crate) type TellReport<S> = Box<dyn FnOnce(&S) + Send>;

/// The held report of the process in the slot `S`, if there is one.
pub(crate) struct HeldReport<S>(Mutex<Option<(TellReport<S>, HeldPhase)>>);

impl<S> HeldReport<S> {
    /// `Hold`.
    pub(crate) fn hold(&self, tell: TellReport<S>) {
        *self.0.lock() = Some((tell, HeldPhase::Unsettled));
    }

    /// `Decide`. The caller emits the returned report.
    pub(crate) fn decide(&self, was_heard: bool, has_handle: bool) -> Option<TellReport<S>> {
        let mut held = self.0.lock();
        let phase = &mut held.as_mut()?.1;
        if !was_heard && has_handle && *phase == HeldPhase::Unsettled {
            *phase = HeldPhase::Settled;
            return None;
        }
        let taken = held.take();
        drop(held);
        taken.filter(|_| !was_heard).map(|held| held.0)
    }

    /// `Take`.
    pub(crate) fn forget(&self) {
        let taken = self.0.lock().take();
        drop(taken);
    }

    /// `Leave`. The caller emits the returned report.
    pub(crate) fn leave(&self) -> Option<TellReport<S>> {
        let mut held = self.0.lock();
        let phase = &mut held.as_mut()?.1;
        if *phase == HeldPhase::Unsettled {
            *phase = HeldPhase::HandleGone;
            return None;
        }
        let taken = held.take();
        drop(held);
        taken.map(|held| held.0)
    }
}

impl<S> Default for HeldReport<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}
