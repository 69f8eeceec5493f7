//! What a shutdown could not finish.

use std::fmt;
use std::panic::Location;

use crate::Pid;
use crate::observe::process_info::{ProcessInfo, in_steps, state};
use crate::observe::snapshot::each;
use crate::process::exit::OnCancel;
use crate::process::wait_reason::Waiting;
use crate::scheduler::shared::Shared;

/// The most processes of one kind that the text of an [`Unfinished`] names. The text goes to a log,
/// where ten thousand lines, for example one for each connection, would hide the other kinds.
const NAMED_MAX: usize = 8;

/// Processes that were spawned at one location, and that a
/// [`Scheduler::shutdown`](crate::Scheduler::shutdown) dropped where they waited.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DroppedProcesses {
    /// Where the processes were spawned.
    pub location: &'static Location<'static>,
    /// The number of processes.
    pub count: u64,
}

impl fmt::Display for DroppedProcesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, count } = self;
        let processes = if *count == 1 { "process was" } else { "processes were" };
        write!(f, "{count} {processes} dropped before the end, spawned at {location}")
    }
}

/// What a [`Scheduler::shutdown`](crate::Scheduler::shutdown) could not finish by its deadline, by
/// kind.
///
/// ```
/// use std::future::pending;
/// use std::time::Duration;
/// use procession::{Context, Scheduler};
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// // It is asked to end, and does not.
/// drop(scheduler.start(|_: Context<()>| pending::<()>()));
/// let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(30)));
/// assert_eq!(unfinished.terminated.len(), 1);
/// assert!(!unfinished.is_empty());
/// let text = unfinished.to_string();
/// assert!(text.ends_with("terminated before it had ended, although it had been asked to end"));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Unfinished {
    /// The processes that have not ended, because a step or a `Drop` has not returned.
    pub processes: Vec<ProcessInfo>,
    /// The processes that were terminated at the deadline. They may clean up
    /// ([`OnCancel::Ask`](crate::OnCancel::Ask)), and had not done so.
    ///
    /// The following are not in the list, because no work is lost: a process that may be dropped
    /// when it is cancelled, a supervisor, a child with
    /// [`Stop::Kill`](crate::supervisor::Stop::Kill), and the connection of an HTTP server, which
    /// counts its `requests`.
    pub terminated: Vec<ProcessInfo>,
    /// The processes that this and earlier shutdowns of the scheduler dropped where they waited,
    /// because [`spawn`](crate::spawn()) permits that by default, by the location of the spawn.
    ///
    /// If such a process only repeats something, nothing is lost. If it serves a client, the
    /// client's answer is lost. So choose at the spawn:
    ///
    /// - [`start`](crate::start()), or
    ///   [`on_cancel(OnCancel::Ask)`](crate::SpawnOptions::on_cancel), for a process that should
    ///   end by itself. It has until the deadline.
    /// - `on_cancel(OnCancel::Drop)` for a process that may be dropped. It is not counted here.
    pub dropped: Vec<DroppedProcesses>,
    /// The number of requests that HTTP servers had begun, and that were cut off at the deadline
    /// before their clients had the whole answer.
    pub requests: u64,
    /// The number of writes that were accepted on the scheduler but have not reached the system: a
    /// helper thread is still writing, or the write has failed and nobody received the error. See
    /// [`fs`](crate::fs#at-the-end).
    pub writes: usize,
    /// The number of messages to other nodes that were accepted and may be lost, because a
    /// connection could not send them in time. See [`relay::Outgoing`](crate::relay::Outgoing).
    pub messages: u64,
    /// The number of closures of [`spawn_blocking`](crate::spawn_blocking()) that processes of the
    /// scheduler have submitted, and that have not returned: they run on, until the program ends,
    /// or wait for a thread. A closure that waits for something without end counts as well. On the
    /// test clock this is 0, because a shutdown does not look at closures there.
    pub jobs: usize,
    /// The number of children that were terminated during the shutdown, and before its deadline,
    /// because the time of their own [`Stop`](crate::supervisor::Stop) was over.
    pub stopped: u64,
    /// The number of requests of HTTP servers that ended with such children, or with processes that
    /// the program killed during the shutdown.
    pub stopped_requests: u64,
}

impl Unfinished {
    /// Returns `true` if nothing is lost: each process has ended by itself or was to be dropped,
    /// each request was answered, each write has ended, each message was sent, and each closure of
    /// [`spawn_blocking`](crate::spawn_blocking()) has returned.
    ///
    /// `stopped` and `stopped_requests` do not count, because the
    /// [`Stop`](crate::supervisor::Stop) of a child has asked for these ends. Neither does
    /// `dropped`, because most programs have processes that only repeat something.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.terminated.is_empty()
            && self.requests == 0
            && self.writes == 0
            && self.messages == 0
            && self.jobs == 0
    }
}

/// Writes one line for each process, up to eight of a kind; one line for each location at which
/// dropped processes were spawned, up to eight; and one line for each further number that is not 0.
impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Lines { f, is_first: true };
        for process in self.processes.iter().take(NAMED_MAX) {
            let state = process.state;
            lines.line(format_args!("{process} had not ended: {state:?}"))?;
        }
        let more = self.processes.len().saturating_sub(NAMED_MAX) as u64;
        lines.count(more, "more process had not ended", "more processes had not ended")?;
        for process in self.terminated.iter().take(NAMED_MAX) {
            let asked = if process.cancelled {
                "although it had been asked to end"
            } else {
                "and had not been asked to end yet"
            };
            lines.line(format_args!("{process} was terminated before it had ended, {asked}"))?;
        }
        let more = self.terminated.len().saturating_sub(NAMED_MAX) as u64;
        lines.count(
            more,
            "more process was terminated before it had ended",
            "more processes were terminated before they had ended",
        )?;
        for (count, one, many) in [
            (self.requests, "request was cut off", "requests were cut off"),
            (
                self.writes as u64,
                "write had not ended or was lost",
                "writes had not ended or were lost",
            ),
            (
                self.messages,
                "message to another node may be lost",
                "messages to other nodes may be lost",
            ),
            (
                self.jobs as u64,
                "closure of `spawn_blocking` had not returned",
                "closures of `spawn_blocking` had not returned",
            ),
            (
                self.stopped,
                "child was terminated when the time of its `Stop` was over",
                "children were terminated when the time of their `Stop` was over",
            ),
            (
                self.stopped_requests,
                "request ended with its child, as a `Stop` asked",
                "requests ended with their children, as a `Stop` asked",
            ),
        ] {
            lines.count(count, one, many)?;
        }
        for dropped in self.dropped.iter().take(NAMED_MAX) {
            lines.line(format_args!("{dropped}"))?;
        }
        let more = self.dropped.iter().skip(NAMED_MAX).map(|dropped| dropped.count).sum();
        lines.count(
            more,
            "more process was dropped before the end",
            "more processes were dropped before the end",
        )?;
        if !self.dropped.is_empty() {
            lines.line(format_args!(
                "(`spawn` permits that; to choose, use `start` or `SpawnOptions::on_cancel`)"
            ))?;
        }
        Ok(())
    }
}

/// Lines without a line feed at the end.
struct Lines<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    is_first: bool,
}

impl Lines<'_, '_> {
    fn line(&mut self, line: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.f.write_str("\n")?;
        }
        self.f.write_fmt(line)
    }

    fn count(&mut self, count: u64, one: &str, many: &str) -> fmt::Result {
        match count {
            0 => Ok(()),
            1 => self.line(format_args!("1 {one}")),
            count => self.line(format_args!("{count} {many}")),
        }
    }
}

/// Returns the processes that have not ended.
pub(crate) fn unfinished(shared: &Shared, except: Option<Pid>) -> Vec<ProcessInfo> {
    let in_steps = in_steps(shared);
    each(shared, |slot, seen| {
        let has_ended = seen.is_complete() && !slot.waiting.get().has(Waiting::DROP);
        (!has_ended && Some(slot.seen_pid()) != except)
            .then(|| ProcessInfo::of(slot, state(slot, seen, &in_steps)))
    })
}

/// Returns the processes that lose something if they are terminated now.
pub(crate) fn interrupted(shared: &Shared, except: Option<Pid>) -> Vec<ProcessInfo> {
    let in_steps = in_steps(shared);
    each(shared, |slot, seen| {
        let cleans_up = slot.kind().on_cancel == OnCancel::Ask
            && !slot.extra().is_some_and(|extra| extra.is_expendable);
        (cleans_up && !seen.is_complete() && Some(slot.seen_pid()) != except)
            .then(|| ProcessInfo::of(slot, state(slot, seen, &in_steps)))
    })
}

/// Returns the processes that the shutdown has dropped by default.
pub(crate) fn dropped(shared: &Shared) -> Vec<DroppedProcesses> {
    let dropped = shared.lifetime.losses.dropped().into_iter();
    dropped.map(|(location, count)| DroppedProcesses { location, count }).collect()
}
