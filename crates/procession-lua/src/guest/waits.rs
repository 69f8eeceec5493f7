//! The waits of a guest, and the events that end them.

use std::future::Future;
use std::io;
use std::sync::Arc;

use mlua::{Lua, MultiValue};
use procession::machine::{CommandId, Yields};
use procession::time::Instant;

use super::state::{Awaited, Cancel, Helper, Running, Served, Taken};
use crate::account::Account;
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::inbox::Received;
use crate::message::{Message, call_proof};
use crate::net::CANCELLED;
use crate::value::{self, Value};

/// The bytes that a Lua state may need for a small value, in addition to the value.
const SPARE: usize = 4096;

impl Running {
    /// Returns the values that the process continues with, or `None` if it must still wait.
    pub(super) fn ready(&mut self, yields: &mut Yields<'_>) -> Result<Option<MultiValue>, Failure> {
        // The time is read only if there is a deadline.
        let is_over = |until: Instant| until <= Instant::now();
        let given = match &mut self.waits {
            Awaited::Ready(given) => Some(std::mem::take(given)),
            Awaited::Receive(until) => {
                let until = *until;
                match self.budget.inbox.pop() {
                    Some(received) => Some(self.received(received)?),
                    None if self.is_ended(until.is_some()) => Some(self.nothing(CANCELLED)?),
                    None if until.is_some_and(is_over) => Some(self.nothing("timeout")?),
                    None => self.wait_until(until, yields),
                }
            }
            &mut Awaited::Sleep(until) => {
                let is_over = is_over(until);
                match is_over || self.is_ended(true) {
                    true => Some(self.given(Ok(Value::Boolean(is_over)))?),
                    false => self.wait_until(Some(until), yields),
                }
            }
            &mut Awaited::Answer { until, monitor, .. } => match until.is_some_and(is_over) {
                true => {
                    yields.demonitor(monitor);
                    Some(self.given(Err("timeout".into()))?)
                }
                false => self.wait_until(until, yields),
            },
            Awaited::Done(_, Cancel::Passed { limited, token }, _) => {
                let (limited, token) = (*limited, token.clone());
                // The wait may have its result already, so it is not known yet what has ended it.
                if self.can_end(limited) {
                    token.cancel();
                }
                None
            }
            &mut Awaited::Done(_, Cancel::Ends { limited }, _) => match self.is_ended(limited) {
                true => Some(self.given(Err(CANCELLED.into()))?),
                false => None,
            },
            Awaited::Done(_, Cancel::Ignored, _) | Awaited::Output(..) => None,
            Awaited::Read { connection, taken, until, .. } => {
                let (connection, taken) = (Arc::clone(connection), taken.clone());
                let limited = until.is_some();
                match self.can_end(limited) {
                    // Bytes that had arrived when the cancel came may not have been seen yet.
                    true => Some(match taken.take(&connection, true) {
                        Some(read) => self.given(read.map_err(|error| error.to_string().into()))?,
                        None => {
                            self.cancel_seen = true;
                            self.given(Err(CANCELLED.into()))?
                        }
                    }),
                    false => None,
                }
            }
        };
        Ok(given)
    }

    /// Returns `true` if a cancel may end a wait, which may be `limited`.
    fn can_end(&self, limited: bool) -> bool {
        self.cancelled && !(limited && self.cancel_seen)
    }

    /// Returns `true` if a cancel ends the wait, which may be `limited`.
    fn is_ended(&mut self, limited: bool) -> bool {
        let ends = self.can_end(limited);
        self.cancel_seen |= ends;
        ends
    }

    /// Starts to wait until there may be something to read.
    pub(super) fn watch(&mut self, yields: &Yields<'_>) -> Result<(), String> {
        self.tag += 1;
        let Awaited::Read { tag, connection, until, helper, .. } = &mut self.waits else {
            return Ok(());
        };
        *tag = self.tag;
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let readable = Arc::clone(connection).readable(timeout);
        let work = async { readable.await.map(|()| Value::Nil) };
        *helper = Some(Helper::start(yields, *tag, String::new(), work)?);
        Ok(())
    }

    /// Sets the timer. If the current timer fires earlier, it stays, and the deadline is checked
    /// again then.
    pub(super) fn wait_until(
        &mut self,
        until: Option<Instant>,
        yields: &mut Yields<'_>,
    ) -> Option<MultiValue> {
        if let Some(until) = until
            && self.timer.is_none_or(|(_, fires)| fires > until)
        {
            if let Some((later, _)) = self.timer {
                yields.cancel_sleep(later);
            }
            self.tag += 1;
            self.timer = Some((self.tag, until));
            let delay = until.saturating_duration_since(Instant::now());
            yields.command(CommandId::SLEEP, self.tag, delay);
        }
        None
    }

    /// Waits for `work`, which another process performs.
    pub(super) fn in_helper<T: Into<Value>>(
        &mut self,
        yields: &Yields<'_>,
        cancel: Cancel,
        act: String,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Result<Served, String> {
        // Before the work begins, because it may be done before it sees the cancel.
        if let Cancel::Ends { limited } | Cancel::Passed { limited, .. } = cancel
            && self.is_ended(limited)
        {
            return Err(CANCELLED.to_owned());
        }
        self.tag += 1;
        let helper = Helper::start(yields, self.tag, act, work)?;
        Ok(Served::Waits(Awaited::Done(self.tag, cancel, Some(helper))))
    }

    /// Reads from a connection. If nothing has arrived, the process waits.
    pub(super) fn read(
        &mut self,
        arguments: &Arguments,
        taken: Taken,
        until: Option<Instant>,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let connection = arguments.connection(0)?;
        let is_over = until.is_some_and(|until| until <= Instant::now());
        // Without time to wait, this is the last look.
        match taken.take(&connection, is_over) {
            Some(read) => Ok(Served::Done(read.map_err(|error| error.to_string())?)),
            None if is_over => Err("timeout".to_owned()),
            None => {
                self.waits = Awaited::Read { tag: 0, connection, taken, until, helper: None };
                self.watch(yields)?;
                Ok(Served::WaitsToRead)
            }
        }
    }

    /// Writes to a connection. If it does not take everything, the process waits.
    pub(super) fn write(
        &mut self,
        arguments: &Arguments,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let (connection, bytes) = (arguments.connection(0)?, arguments.bytes(1)?);
        match connection.try_write(&bytes).map_err(|error| error.to_string())? {
            None => Ok(Served::Done(Value::Boolean(true))),
            Some(some) => {
                let writing = connection.write(bytes, some, arguments.duration(2)?);
                let work = async { writing.await.map(|()| true) };
                self.in_helper(yields, Cancel::Ignored, String::new(), work)
            }
        }
    }

    pub(super) fn nothing(&self, why: &str) -> mlua::Result<MultiValue> {
        Ok(MultiValue::from_iter([mlua::Value::Boolean(true), mlua::Value::Nil, self.text(why)?]))
    }

    pub(super) fn received(&mut self, received: Received) -> mlua::Result<MultiValue> {
        let entry = |key: &str, value: Value| (Value::string(key), value);
        let caller = match received {
            Received::Call(from, tag, _) => Some((from, tag)),
            _ => None,
        };
        let mut reports = mlua::Value::Nil;
        let (message, call) = match received {
            Received::Message(message) => (message, None),
            Received::Call(from, tag, message) => {
                let mut call = vec![
                    entry("from", from.into()),
                    entry("tag", Value::Integer(tag.cast_signed())),
                ];
                if Account::of(from).is_none() {
                    call.push(entry("proof", call_proof(from, tag)));
                }
                (message, Some(Value::Table(call)))
            }
            Received::RemoteCall(call, message) => (message, Some(call)),
            #[cfg(feature = "cluster")]
            Received::News(kind, message) => {
                reports = self.text(kind)?;
                (message, None)
            }
            Received::Ended(pid, exit, is_down) => {
                self.monitors = self.monitors.saturating_sub(usize::from(is_down));
                let key = if is_down { "down" } else { "exit" };
                reports = self.text(key)?;
                let (pid, reason) =
                    (pid.map_or(Value::Boolean(true), Value::Pid), exit.to_string());
                (Value::Table(vec![entry(key, pid), entry("reason", Value::string(reason))]), None)
            }
        };
        let Some(message) = self.give(&message)? else {
            if let Some((from, tag)) = caller {
                let result = Err("the process has no memory for the request".into());
                // Ignored: if the caller has ended, no process needs the result.
                drop(procession::mailbox::send(from, Message::Done { tag, result }));
            }
            return self.nothing("not enough memory for the message");
        };
        let call = match call {
            Some(call) => self.with_room(self.spare(0), |lua| value::give(lua, &call))?,
            None => mlua::Value::Nil,
        };
        let has_more = mlua::Value::Boolean(self.budget.inbox.has_more());
        Ok(MultiValue::from_iter([mlua::Value::Boolean(true), message, call, has_more, reports]))
    }

    /// Copies a value into the Lua state. Messages arrive whatever their receiver does, so they may
    /// exceed the limit of its memory, up to twice the limit. What the process allocates itself
    /// then fails until it needs less. Returns `None` if that is not enough.
    fn give(&self, value: &Value) -> mlua::Result<Option<mlua::Value>> {
        let most = self.budget.memory_bytes().saturating_mul(2);
        match self.with_room(most, |lua| value::give(lua, value)) {
            Err(mlua::Error::MemoryError(_)) => Ok(None),
            given => given.map(Some),
        }
    }

    /// Makes a value in the Lua state, which may then have `most` bytes if its limit is less.
    fn with_room<T>(&self, most: usize, make: impl Fn(&Lua) -> mlua::Result<T>) -> mlua::Result<T> {
        let made = make(&self.lua);
        if !matches!(made, Err(mlua::Error::MemoryError(_))) {
            return made;
        }
        self.lua.set_memory_limit(most)?;
        let made = make(&self.lua);
        self.lua.set_memory_limit(self.budget.memory_bytes())?;
        made
    }

    /// Returns the bytes of the Lua state with a small value of `bytes`.
    fn spare(&self, bytes: usize) -> usize {
        self.lua.used_memory().saturating_add(bytes).saturating_add(SPARE)
    }

    /// Copies a text of the runtime into the Lua state, whatever its limit is.
    fn text(&self, text: &str) -> mlua::Result<mlua::Value> {
        let make = |lua: &Lua| lua.create_string(text).map(mlua::Value::String);
        self.with_room(self.spare(text.len()), make)
    }

    /// Returns the values that an operation of the runtime passes to Lua.
    pub(super) fn given(&self, result: Result<Value, Box<str>>) -> mlua::Result<MultiValue> {
        let (ok, value) = match result.map(|value| self.give(&value)) {
            Ok(given) => match given? {
                Some(value) => (true, value),
                None => (false, self.text("not enough memory for the result")?),
            },
            Err(cause) => (false, self.text(&cause)?),
        };
        Ok(MultiValue::from_iter([mlua::Value::Boolean(ok), value]))
    }
}
