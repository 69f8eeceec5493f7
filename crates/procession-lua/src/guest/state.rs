//! The state of a guest that has started, and the conditions that it waits for.

use std::future::Future;
use std::io;
use std::sync::Arc;

use mlua::{Lua, MultiValue, Thread};
use procession::machine::Yields;
use procession::process::{MonitorRef, OnCancel};
use procession::sync::CancellationToken;
use procession::time::Instant;
use procession::{Pid, SpawnOptions};

use super::timers::Timers;
use crate::account::{Account, Figures};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::host::Host;
use crate::message::{Content, Message};
use crate::net::Connection;
use crate::output::Turn;
use crate::permissions::Bounds;
use crate::program::Upgrade;
use crate::value::Value;

/// The state of a guest that has started. Lua's values refer to the Lua state, which is dropped
/// with the last value.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) host: &'static dyn Host,
    pub(super) lua: Lua,
    pub(super) bounds: Bounds,
    pub(super) account: Arc<Account>,
    pub(super) thread: Thread,
    pub(super) budget: Arc<Budget>,
    pub(super) waits: Awaited,
    /// The last tag that was given to an operation.
    pub(super) tag: u64,
    /// The timer that is set, and the time at which it fires. There is at most one.
    pub(super) timer: Option<(u64, Instant)>,
    /// The messages that are sent later.
    pub(super) timers: Timers,
    /// The monitor of a call that was answered. The end that it reports has not arrived yet.
    pub(super) answered: Option<MonitorRef>,
    /// The client of the request that the process handles.
    pub(super) client: Option<Client>,
    /// The number of monitors with a report that was not received yet.
    pub(super) monitors: usize,
    pub(super) cancelled: bool,
    /// `true` once the cancel has ended a wait, and the program knows it.
    pub(super) cancel_seen: bool,
    /// `true` once its function has waited.
    pub(super) has_waited: bool,
    /// The upgrade that happens at the next receive.
    pub(super) asked: Option<Upgrade>,
    pub(super) ending: Option<Ending>,
}

impl Running {
    /// Takes over the process from its other state: what was received, the timer, the cancel.
    pub(super) fn take_over(&mut self, other: &mut Self) {
        self.budget.inbox.take_over(&other.budget.inbox);
        self.budget.take_over(&other.budget);
        self.asked = other.asked.take();
        (self.tag, self.timer) = (other.tag, other.timer.take());
        (self.cancelled, self.cancel_seen) = (other.cancelled, other.cancel_seen);
        self.monitors = other.monitors;
        self.timers = std::mem::take(&mut other.timers);
        if other.budget.has_printed() {
            self.budget.note_printed();
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures { inbox: self.budget.inbox.len(), memory: self.lua.used_memory() }
    }
}

/// The client of a request.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: Arc<Connection>,
    /// The tag of the operation that reads the request.
    pub(super) reads: u64,
    /// Ends the process if the client abandons the request. Present once a step has ended before
    /// the answer.
    pub(super) watch: Option<Helper>,
}

/// The end of a process: its function has ended, but it may still wait for an output.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) result: Result<Value, Failure>,
    /// The steps that are left for the outputs: first the report, then the two waits.
    pub(super) report: Option<String>,
    pub(super) settle_out: bool,
    pub(super) settle_err: bool,
}

/// The condition that a process waits for.
#[derive(Debug)]
pub(super) enum Awaited {
    /// None: the process continues with these values.
    Ready(MultiValue),
    Receive(Option<Instant>),
    Sleep(Instant),
    Answer {
        tag: u64,
        monitor: MonitorRef,
        until: Option<Instant>,
    },
    Done(u64, Cancel, #[expect(dead_code, reason = "its drop ends the wait")] Option<Helper>),
    /// The output has no room, or has not written everything yet. A cancel does not end this wait.
    Output(u64, #[expect(dead_code, reason = "its drop ends the wait")] Turn),
    /// The connection may have something to read, or the time is over.
    Read {
        tag: u64,
        connection: Arc<Connection>,
        taken: Taken,
        until: Option<Instant>,
        helper: Option<Helper>,
    },
}

/// What happens to the bytes that arrive in a connection.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    /// The program gets so many bytes.
    Given(usize),
    /// The connection keeps them for the next message of HTTP. The program gets `true`.
    /// They count in the account of the process.
    Kept(Arc<Account>),
}

impl Taken {
    /// Takes bytes that are known to have arrived. With `last`, it is the last look.
    pub(super) fn take(&self, connection: &Connection, last: bool) -> Option<io::Result<Value>> {
        let most = match self {
            Self::Given(most) => *most,
            Self::Kept(_) if connection.has_kept() => return Some(Ok(Value::Boolean(true))),
            Self::Kept(_) => usize::MAX,
        };
        let read = if last { connection.read_now(most) } else { connection.try_read(most) };
        read.map(|read| {
            let bytes = read?;
            Ok(match self {
                _ if bytes.is_empty() => Value::Nil,
                Self::Kept(account) => {
                    connection.keep(bytes.to_vec(), 0, account.hold());
                    Value::Boolean(true)
                }
                Self::Given(_) => Value::String(bytes),
            })
        })
    }
}

/// The effect of a cancel on a wait.
#[derive(Debug)]
pub(super) enum Cancel {
    /// None. The wait ends by itself, and the operation should be completed.
    Ignored,
    /// The cancel ends every wait without a limit of time, and the first wait that is `limited`. A
    /// process may therefore still wait while it cleans up, but not forever.
    Ends { limited: bool },
    /// The same, but the cancel is passed on through the token to the process that waits on behalf
    /// of the guest. That ends the wait, so nothing is lost that this process has already taken for
    /// the guest. Such a process is not cancelled itself, because a shutdown does so before it
    /// cancels the guest, if a supervisor has the guest.
    Passed { limited: bool, token: CancellationToken },
}

/// The result of serving an operation.
pub(super) enum Served {
    /// The operation is done: the process continues with this value.
    Done(Value),
    /// The process waits.
    Waits(Awaited),
    /// The process waits for something to read, and has already recorded that.
    WaitsToRead,
    /// The process continues after all other processes that are ready.
    Yields,
}

/// A process that waits on behalf of a guest. It is killed when the wait ends.
#[derive(Debug)]
pub(super) struct Helper(Pid);

impl Drop for Helper {
    fn drop(&mut self) {
        // Ignored: in most cases the process has already ended.
        procession::process::kill(self.0);
    }
}

impl Helper {
    /// Starts a process that performs `work`. A cancel of the process drops the work. A shutdown
    /// cancels it after the guest.
    pub(super) fn start<T: Into<Value>>(
        yields: &Yields<'_>,
        tag: u64,
        act: String,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Result<Self, String> {
        let to = yields.pid();
        let options = SpawnOptions::new().on_cancel(OnCancel::Drop);
        let started = options.try_spawn(async move {
            let result: Result<Value, Box<str>> =
                work.await.map(Into::into).map_err(|error| match act.as_str() {
                    "" => error.to_string().into(),
                    act => format!("{act}: {error}").into(),
                });
            let message = match (Account::of(to), result) {
                // The guest waits for it, so it is never refused.
                (Some(account), Ok(value)) => {
                    let charge = account.charge_over(value.size());
                    Message::Charged(Content::Done { tag, value }.charged(charge))
                }
                (_, result) => Message::Done { tag, result },
            };
            // Ignored: if the guest has ended, no process needs the result.
            drop(procession::mailbox::send(to, message));
        });
        let helper = started.map_err(|error| error.to_string())?;
        Ok(Self(helper.pid()))
    }
}
