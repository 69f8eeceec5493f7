//! Guests: processes written in Lua.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use mlua::{Lua, MultiValue, Thread};
use procession::command::{BlockingWork, Command, CommandId, CommandResult};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::relations::MonitorRef;
use procession::time::Instant;
use procession::{Event, Exit, Pid, SpawnOptions};

use crate::library::{self, Arguments, Budget};
use crate::net::{self, Connection};
use crate::output::{Output, Turn};
use crate::program::Program;
use crate::value::{self, Socket, Value};

/// The number of operations that a step serves without waiting. After that, other processes run.
const OPERATIONS_MAX: u32 = 128;
/// The number of bytes of a file that one call reads at most.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A message to a guest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// A message for `process.receive`.
    Plain(Value),
    /// A request for `process.receive`, which returns a second value for the reply.
    Call {
        /// The calling process.
        from: Pid,
        /// The caller's number for this call.
        tag: u64,
        /// The request.
        value: Value,
    },
    /// The answer to a call that this process made. If the process no longer waits for it, it is
    /// dropped.
    Answer {
        /// The number of the answered call.
        tag: u64,
        /// The answer.
        value: Value,
    },
    /// The end of an operation that ran on behalf of this process, such as a read.
    Done {
        /// The number of the operation.
        tag: u64,
        /// The result of the operation.
        result: Result<Value, Box<str>>,
    },
}

impl From<Value> for Message {
    fn from(value: Value) -> Self {
        Self::Plain(value)
    }
}

/// A process of a [`Program`].
///
/// Its method is the global function that it calls. Its input is a `Vec<Value>` of arguments, or
/// `()` for none.
#[derive(Debug)]
pub struct Guest {
    program: Program,
    method: Box<str>,
    running: Option<Running>,
}

/// The state of a guest that has started. Lua's values refer to the Lua state, which is dropped
/// with the last of them.
#[derive(Debug)]
struct Running {
    lua: Lua,
    thread: Thread,
    budget: Arc<Budget>,
    inbox: VecDeque<Received>,
    waits: Waits,
    /// The last tag that was given to an operation.
    tag: u64,
    /// The timer that is set, and the time at which it fires. There is at most one.
    timer: Option<(u64, Instant)>,
    cancelled: bool,
    /// `true` after a cancel has ended a wait.
    cancel_seen: bool,
    ending: Option<Ending>,
}

/// The end of a process: its function has ended, but it may still wait for an output.
#[derive(Debug)]
struct Ending {
    result: Result<Value, Failure>,
    /// The steps that are left for the outputs: first the report, then the two waits.
    report: Option<String>,
    settle_out: bool,
    settle_err: bool,
}

/// An item for `process.receive`.
#[derive(Debug)]
enum Received {
    Message(Value),
    Call(Pid, u64, Value),
    /// The end of a process: its PID, the reason, and `true` for a monitor or `false` for a link.
    Ended(Option<Pid>, String, bool),
}

/// The condition that a process waits for.
#[derive(Debug)]
enum Waits {
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
        most: usize,
        until: Option<Instant>,
        helper: Option<Helper>,
    },
}

/// A process that waits on behalf of a guest. It is killed when the wait ends.
#[derive(Debug)]
struct Helper(Pid);

impl Drop for Helper {
    fn drop(&mut self) {
        // Ignored: in most cases the process has already ended.
        procession::relations::send_exit(self.0, Exit::Killed);
    }
}

/// The effect of a cancel on a wait.
#[derive(Clone, Copy, Debug)]
enum Cancel {
    /// None. The wait ends by itself, and the operation should be completed.
    Ignored,
    /// The cancel ends every wait without a limit of time, and the first one that is `limited`. A
    /// process may therefore still wait while it cleans up, but not forever.
    Ends { limited: bool },
}

impl Guest {
    /// Creates a process of `program` for [`procession::machine::spawn_machine`].
    /// [`Program::spawn`] does both.
    pub fn new(program: Program) -> Self {
        Self { program, method: "".into(), running: None }
    }

    fn start(&self, method: &str, arguments: &[Value]) -> Result<Running, InitError> {
        let refused = |error: mlua::Error| InitError::Refused(error.to_string().into());
        let budget = Arc::new(Budget::default());
        let lua = library::open(&self.program, &budget).map_err(refused)?;
        let mut found = mlua::Value::Table(lua.globals());
        // A name with a dot refers to a function in a global table.
        for part in method.splitn(2, '.') {
            let mlua::Value::Table(table) = found else {
                return Err(InitError::unknown_method(method));
            };
            // Not a raw access, so that it loads a part of the library on first use.
            found = table.get(part).map_err(refused)?;
        }
        let mlua::Value::Function(function): mlua::Value = found else {
            return Err(InitError::unknown_method(method));
        };
        let thread = lua.create_thread(function).map_err(refused)?;
        let given = arguments
            .iter()
            .map(|argument| value::give(&lua, argument))
            .collect::<mlua::Result<MultiValue>>();
        let waits = Waits::Ready(given.map_err(refused)?);
        Ok(Running {
            lua,
            thread,
            budget,
            inbox: VecDeque::new(),
            waits,
            tag: 0,
            timer: None,
            cancelled: false,
            cancel_seen: false,
            ending: None,
        })
    }
}

impl Process for Guest {
    type Input = procession::command::Value;
    type Message = Message;
    type Output = Value;

    fn init(&mut self, method: &str, input: Self::Input) -> Result<(), InitError> {
        let arguments = match input.downcast::<Vec<Value>>() {
            Ok(arguments) => *arguments,
            Err(other) if other.is::<()>() => Vec::new(),
            Err(_) => {
                return Err(InitError::Refused("the input of a guest must be a Vec<Value>".into()));
            }
        };
        self.method = method.into();
        self.running = Some(self.start(method, &arguments)?);
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Value>, Box<dyn Error + Send + Sync>> {
        let running = self.running.as_mut().ok_or("a guest cannot step before its init")?;
        let handled = running.handle_events(events, yields);
        if running.ending.is_none() {
            let result = match handled.and_then(|()| running.run(&self.program, yields)) {
                Ok(Status::Done(value)) => Ok(value),
                Err(failure) => Err(failure),
                Ok(status) => return Ok(status),
            };
            let inner = self.program.inner();
            let failure =
                result.as_ref().err().filter(|_| inner.reports && *self.method != *"main");
            let report = failure
                .map(|failure| format!("{} {} failed: {failure}\n", yields.pid(), self.method));
            let settle = inner.settles && (report.is_some() || running.budget.has_printed());
            running.ending =
                Some(Ending { result, report, settle_out: settle, settle_err: settle });
            running.waits = Waits::Ready(MultiValue::new());
        }
        running.end(&self.program, yields)
    }

    fn close(&mut self) {
        self.running = None;
    }
}

type Failure = Box<dyn Error + Send + Sync>;

/// The result of serving an operation.
enum Served {
    /// The operation is done: the process continues with this value.
    Done(Value),
    /// The process waits.
    Waits(Waits),
    /// The process waits for something to read, and has already recorded that.
    WaitsToRead,
    /// The process continues after all other processes that are ready.
    Yields,
}

impl Running {
    fn handle_events(
        &mut self,
        events: &mut Events<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        events.try_for_each(|event| self.handle_event(event, yields))
    }

    fn handle_event(
        &mut self,
        event: Event<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        match event {
            Event::Message(Message::Plain(value)) => self.inbox.push_back(Received::Message(value)),
            Event::Message(Message::Call { from, tag, value }) => {
                self.inbox.push_back(Received::Call(from, tag, value));
            }
            Event::Message(Message::Answer { tag, value }) => {
                if let Waits::Answer { tag: wanted, monitor, .. } = self.waits
                    && wanted == tag
                {
                    yields.demonitor(monitor);
                    self.waits = Waits::Ready(self.given(Ok(value))?);
                }
            }
            Event::Message(Message::Done { tag, result }) => self.done(tag, result, yields)?,
            Event::Completion { tag, result } => {
                if self.timer.is_some_and(|(timer, _)| timer == tag) {
                    self.timer = None;
                } else {
                    self.done(tag, completed(result), yields)?;
                }
            }
            Event::Cancel => self.cancelled = true,
            Event::Down(down) => match self.waits {
                Waits::Answer { monitor, .. } if monitor == down.monitor => {
                    self.waits = Waits::Ready(self.given(Err(down.exit.to_string().into()))?);
                }
                _ => self.inbox.push_back(Received::Ended(
                    Some(down.pid),
                    down.exit.to_string(),
                    true,
                )),
            },
            Event::Exit(signal) => {
                self.inbox.push_back(Received::Ended(signal.from, signal.exit.to_string(), false));
            }
            _ => {}
        }
        Ok(())
    }

    fn done(
        &mut self,
        tag: u64,
        result: Result<Value, Box<str>>,
        yields: &Yields<'_>,
    ) -> Result<(), Failure> {
        match &self.waits {
            Waits::Done(wanted, ..) | Waits::Output(wanted, _) if *wanted == tag => {
                self.waits = Waits::Ready(self.given(result)?);
            }
            Waits::Read { tag: wanted, connection, most, .. } if *wanted == tag => {
                // Read here the bytes that the wait was for. If a cancel comes before the process
                // continues, they are not lost.
                let read = result.and_then(|_| {
                    Ok(connection.try_read(*most).transpose().map_err(|error| error.to_string())?)
                });
                match read.transpose() {
                    Some(read) => self.waits = Waits::Ready(self.given(read)?),
                    // The wake-up was spurious.
                    None => self.watch(yields)?,
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the values that an operation of the runtime passes to Lua.
    fn given(&self, result: Result<Value, Box<str>>) -> mlua::Result<MultiValue> {
        let (ok, value) = match result {
            Ok(value) => (true, value),
            Err(cause) => (false, Value::string(&*cause)),
        };
        Ok(MultiValue::from_iter([mlua::Value::Boolean(ok), value::give(&self.lua, &value)?]))
    }

    fn run(
        &mut self,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Value>, Failure> {
        self.budget.renew();
        for _ in 0..OPERATIONS_MAX {
            let Some(given) = self.ready(yields)? else {
                return Ok(Status::Wait(WaitingFor::Either));
            };
            let mut yielded = self.thread.resume::<MultiValue>(given)?;
            if self.thread.is_finished() {
                let result = yielded.pop_front().unwrap_or(mlua::Value::Nil);
                let result = value::take(&result)
                    .map_err(|error| format!("the result of the process: {error}"))?;
                return Ok(Status::Done(result));
            }
            // The hook yields no value. Inside of a coroutine that becomes `nil`.
            let operation = match yielded.pop_front() {
                None | Some(mlua::Value::Nil) => {
                    self.waits = Waits::Ready(MultiValue::new());
                    return Ok(Status::Continue);
                }
                Some(mlua::Value::String(operation)) => operation.as_bytes().to_vec(),
                Some(_) => {
                    return Err(
                        "coroutine.yield was called outside of a coroutine of the program".into()
                    );
                }
            };
            match self.serve(&operation, &Arguments(yielded), program, yields) {
                Ok(Served::Done(value)) => self.waits = Waits::Ready(self.given(Ok(value))?),
                Ok(Served::Waits(waits)) => self.waits = waits,
                Ok(Served::WaitsToRead) => {}
                Ok(Served::Yields) => {
                    self.waits = Waits::Ready(self.given(Ok(Value::Nil))?);
                    return Ok(Status::Continue);
                }
                Err(cause) => self.waits = Waits::Ready(self.given(Err(cause.into()))?),
            }
        }
        Ok(Status::Continue)
    }

    /// Performs the steps that are left at the end of the process, and ends it.
    fn end(
        &mut self,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Value>, Failure> {
        let (out, err) = (&program.inner().out, &program.inner().err);
        while matches!(self.waits, Waits::Ready(_))
            && let Some(ending) = &mut self.ending
        {
            self.tag += 1;
            let (tag, completion) = (self.tag, || yields.completion(self.tag));
            let turn = if let Some(report) = ending.report.take() {
                err.write(report.as_bytes(), completion)
            } else if std::mem::take(&mut ending.settle_out) {
                out.settle(completion)
            } else if std::mem::take(&mut ending.settle_err) {
                err.settle(completion)
            } else {
                break;
            };
            if let Some(turn) = turn {
                self.waits = Waits::Output(tag, turn);
            }
        }
        match self.ending.take_if(|_| matches!(self.waits, Waits::Ready(_))) {
            Some(ending) => ending.result.map(Status::Done),
            None => Ok(Status::Wait(WaitingFor::Either)),
        }
    }

    /// Returns the values that the process continues with, or `None` if it must still wait.
    fn ready(&mut self, yields: &mut Yields<'_>) -> Result<Option<MultiValue>, Failure> {
        let now = Instant::now();
        let given = match &mut self.waits {
            Waits::Ready(given) => Some(std::mem::take(given)),
            Waits::Receive(until) => {
                let until = *until;
                match self.inbox.pop_front() {
                    Some(received) => Some(self.received(received)?),
                    None if self.is_ended(Cancel::Ends { limited: until.is_some() }) => {
                        Some(self.nothing("cancelled")?)
                    }
                    None if until.is_some_and(|until| until <= now) => {
                        Some(self.nothing("timeout")?)
                    }
                    None => self.wait_until(until, now, yields),
                }
            }
            &mut Waits::Sleep(until) => {
                match until <= now || self.is_ended(Cancel::Ends { limited: true }) {
                    true => Some(self.given(Ok(Value::Boolean(until <= now)))?),
                    false => self.wait_until(Some(until), now, yields),
                }
            }
            &mut Waits::Answer { until, monitor, .. } => {
                match until.is_some_and(|until| until <= now) {
                    true => {
                        yields.demonitor(monitor);
                        Some(self.given(Err("timeout".into()))?)
                    }
                    false => self.wait_until(until, now, yields),
                }
            }
            &mut Waits::Done(_, cancel, _) => match self.is_ended(cancel) {
                true => Some(self.given(Err("cancelled".into()))?),
                false => None,
            },
            Waits::Output(..) => None,
            &mut Waits::Read { until, .. } => {
                match self.is_ended(Cancel::Ends { limited: until.is_some() }) {
                    true => Some(self.given(self.last_read())?),
                    false => None,
                }
            }
        };
        Ok(given)
    }

    /// Returns `true` if a cancel ends the wait.
    fn is_ended(&mut self, cancel: Cancel) -> bool {
        let Cancel::Ends { limited } = cancel else { return false };
        let ends = self.cancelled && !(limited && self.cancel_seen);
        self.cancel_seen |= ends;
        ends
    }

    /// Reads bytes that had arrived when the cancel came, but had not been seen yet.
    fn last_read(&self) -> Result<Value, Box<str>> {
        match &self.waits {
            Waits::Read { connection, most, .. } => match connection.try_read(*most) {
                Some(read) => read.map_err(|error| error.to_string().into()),
                None => Err("cancelled".into()),
            },
            _ => Err("cancelled".into()),
        }
    }

    /// Starts to wait until there may be something to read.
    fn watch(&mut self, yields: &Yields<'_>) -> Result<(), String> {
        self.tag += 1;
        let Waits::Read { tag, connection, until, helper, .. } = &mut self.waits else {
            return Ok(());
        };
        *tag = self.tag;
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        *helper = Some(start_helper(
            yields,
            *tag,
            String::new(),
            Arc::clone(connection).readable(timeout),
        )?);
        Ok(())
    }

    /// Sets the timer. If the current timer fires earlier, it stays, and the deadline is checked
    /// again then.
    fn wait_until(
        &mut self,
        until: Option<Instant>,
        now: Instant,
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
            yields.command(CommandId::SLEEP, self.tag, until.saturating_duration_since(now));
        }
        None
    }

    fn nothing(&self, why: &str) -> mlua::Result<MultiValue> {
        let why = mlua::Value::String(self.lua.create_string(why)?);
        Ok(MultiValue::from_iter([mlua::Value::Boolean(true), mlua::Value::Nil, why]))
    }

    fn received(&self, received: Received) -> mlua::Result<MultiValue> {
        let entry = |key: &str, value: Value| (Value::string(key), value);
        let (message, call) = match received {
            Received::Message(message) => (message, None),
            Received::Call(from, tag, message) => {
                let call = vec![
                    entry("from", from.into()),
                    entry("tag", Value::Integer(tag.cast_signed())),
                ];
                (message, Some(Value::Table(call)))
            }
            Received::Ended(pid, reason, is_down) => {
                let key = if is_down { "down" } else { "exit" };
                let pid = pid.map_or(Value::Boolean(true), Value::Pid);
                (Value::Table(vec![entry(key, pid), entry("reason", Value::string(reason))]), None)
            }
        };
        let mut given = self.given(Ok(message))?;
        if let Some(call) = call {
            given.push_back(value::give(&self.lua, &call)?);
        }
        Ok(given)
    }

    fn serve(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        Ok(match operation {
            b"receive" => Served::Waits(Waits::Receive(deadline(arguments, 0)?)),
            b"sleep" => Served::Waits(Waits::Sleep(
                deadline(arguments, 0)?.ok_or("argument 1 must be a number of milliseconds")?,
            )),
            b"yield" => Served::Yields,
            b"cancelled" => Served::Done(Value::Boolean(self.cancelled)),
            b"call" => {
                let to = arguments.target(0)?;
                let (value, until) = (arguments.value(1)?, deadline(arguments, 2)?);
                self.tag += 1;
                let tag = self.tag;
                let monitor = yields.monitor(to);
                // If the message is refused, the monitor reports the reason.
                drop(procession::mailbox::send(
                    to,
                    Message::Call { from: yields.pid(), tag, value },
                ));
                Served::Waits(Waits::Answer { tag, monitor, until })
            }
            b"link" => {
                yields.link(arguments.target(0)?);
                Served::Done(Value::Boolean(true))
            }
            b"unlink" => {
                yields.unlink(arguments.target(0)?);
                Served::Done(Value::Boolean(true))
            }
            b"monitor" => {
                yields.monitor(arguments.target(0)?);
                Served::Done(Value::Boolean(true))
            }
            b"trap" => Served::Done(Value::Boolean(
                yields.trap_exits(arguments.value(0)? == Value::Boolean(true)),
            )),
            b"print" => self.print(&program.inner().out, arguments, yields)?,
            b"log" => self.print(&program.inner().err, arguments, yields)?,
            b"command" => {
                let index = usize::try_from(arguments.integer(0)?).ok();
                let known = index.and_then(|index| program.inner().commands.get(index));
                let id = known.ok_or("there is no such command")?.1;
                let value = arguments.value(1)?;
                self.tag += 1;
                yields.command(id, self.tag, value);
                Served::Waits(Waits::Done(self.tag, Cancel::Ignored, None))
            }
            b"fs.read" => {
                let (path, from, count) =
                    (arguments.text(0)?, arguments.integer(1)?, arguments.integer(2)?);
                self.blocking(yields, move || read_file(&path, from, count))
            }
            b"fs.size" => {
                let path = arguments.text(0)?;
                self.blocking(yields, move || {
                    let size = std::fs::metadata(&path)
                        .map_err(|error| about("get the size of", &path, &error))?
                        .len();
                    Ok(Value::Integer(size.cast_signed()))
                })
            }
            b"connect" => {
                let (address, timeout) = (arguments.text(0)?, timeout(arguments, 1)?);
                let ends = Cancel::Ends { limited: timeout.is_some() };
                self.in_helper(
                    yields,
                    ends,
                    format!("cannot connect to {address}"),
                    net::connect(address, timeout),
                )?
            }
            b"listen" => {
                let address = arguments.text(0)?;
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    format!("cannot listen at {address}"),
                    net::listen(address),
                )?
            }
            b"accept" => match arguments.socket(0)? {
                Socket::Listener(listener) => self.in_helper(
                    yields,
                    Cancel::Ends { limited: false },
                    String::new(),
                    listener.accept(),
                )?,
                Socket::Connection(_) => return Err("argument 1 must be a listener".to_owned()),
            },
            b"read" => {
                let Socket::Connection(connection) = arguments.socket(0)? else {
                    return Err("argument 1 must be a connection".to_owned());
                };
                let most = usize::try_from(arguments.integer(1)?).unwrap_or(1);
                let until = deadline(arguments, 2)?;
                match connection.try_read(most) {
                    Some(read) => Served::Done(read.map_err(|error| error.to_string())?),
                    None if until.is_some_and(|until| until <= Instant::now()) => {
                        return Err("timeout".to_owned());
                    }
                    None => {
                        self.waits = Waits::Read { tag: 0, connection, most, until, helper: None };
                        self.watch(yields)?;
                        return Ok(Served::WaitsToRead);
                    }
                }
            }
            b"write" => {
                let Socket::Connection(connection) = arguments.socket(0)? else {
                    return Err("argument 1 must be a connection".to_owned());
                };
                let bytes = arguments.bytes(1)?;
                match connection.try_write(&bytes).map_err(|error| error.to_string())? {
                    all if all == bytes.len() => Served::Done(Value::Boolean(true)),
                    some => {
                        let work = connection.write(bytes, some, timeout(arguments, 2)?);
                        self.in_helper(yields, Cancel::Ignored, String::new(), work)?
                    }
                }
            }
            _ => return Err("the runtime has no such operation".to_owned()),
        })
    }

    /// Appends a line to an output. If it has no room, the process waits.
    fn print(
        &mut self,
        output: &Output,
        arguments: &Arguments,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        let line = arguments.bytes(0)?;
        self.tag += 1;
        let turn = output.write(&line, || yields.completion(self.tag));
        Ok(turn
            .map_or(Served::Done(Value::Nil), |turn| Served::Waits(Waits::Output(self.tag, turn))))
    }

    fn blocking(
        &mut self,
        yields: &mut Yields<'_>,
        work: impl FnOnce() -> Result<Value, String> + Send + 'static,
    ) -> Served {
        self.tag += 1;
        yields.perform(self.tag, BlockingWork::new(work));
        Served::Waits(Waits::Done(self.tag, Cancel::Ignored, None))
    }

    fn in_helper<F>(
        &mut self,
        yields: &Yields<'_>,
        cancel: Cancel,
        act: String,
        work: F,
    ) -> Result<Served, String>
    where
        F: Future<Output = io::Result<Value>> + Send + 'static,
    {
        self.tag += 1;
        let helper = start_helper(yields, self.tag, act, work)?;
        Ok(Served::Waits(Waits::Done(self.tag, cancel, Some(helper))))
    }
}

/// Starts a process that performs `work`.
fn start_helper<F>(yields: &Yields<'_>, tag: u64, act: String, work: F) -> Result<Helper, String>
where
    F: Future<Output = io::Result<Value>> + Send + 'static,
{
    let to = yields.pid();
    let started = SpawnOptions::new().try_spawn(async move {
        let result = work.await.map_err(|error| match act.as_str() {
            "" => error.to_string().into(),
            act => format!("{act}: {error}").into(),
        });
        // Ignored: if the guest has ended, no process needs the result.
        drop(procession::mailbox::send(to, Message::Done { tag, result }));
    });
    let helper = started.map_err(|error| error.to_string())?;
    Ok(Helper(helper.pid()))
}

/// Returns the result of a command: of file work, or of a handler of the program's host.
fn completed(result: CommandResult) -> Result<Value, Box<str>> {
    let result = match result {
        Ok(value) => match value.downcast::<Value>() {
            Ok(value) => return Ok(*value),
            Err(other) => Ok(other),
        },
        Err(error) => Err(error),
    };
    match BlockingWork::<Result<Value, String>>::output(result) {
        Ok(result) => result.map_err(Into::into),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Returns the time limit in an argument: a number of milliseconds, or `nil` for none.
fn timeout(arguments: &Arguments, index: usize) -> Result<Option<Duration>, String> {
    let milliseconds = match arguments.value(index)? {
        Value::Nil => return Ok(None),
        Value::Integer(count) => Duration::from_millis(u64::try_from(count).unwrap_or(0)),
        Value::Float(count) => {
            Duration::try_from_secs_f64(count.max(0.0) / 1000.0).unwrap_or(Duration::MAX)
        }
        _ => return Err(format!("argument {} must be a number of milliseconds", index + 1)),
    };
    Ok(Some(milliseconds))
}

fn deadline(arguments: &Arguments, index: usize) -> Result<Option<Instant>, String> {
    Ok(timeout(arguments, index)?.map(|timeout| Instant::now() + timeout))
}

fn about(act: &str, path: &str, error: &io::Error) -> String {
    format!("cannot {act} {path}: {error}")
}

/// Reads `count` bytes from the offset `from`, or fewer if the file ends before. If `count` is
/// negative, reads to the end.
fn read_file(path: &str, from: i64, count: i64) -> Result<Value, String> {
    let failed = |error: io::Error| about("read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let from = u64::try_from(from).map_err(|_| format!("cannot read {path} from offset {from}"))?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let wanted = u64::try_from(count).unwrap_or(FILE_BYTES_MAX + 1);
    let mut bytes = Vec::new();
    let read = file.take(wanted.min(FILE_BYTES_MAX + 1)).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "cannot read {path}: it is larger than {FILE_BYTES_MAX} bytes; read parts of it"
        ));
    }
    Ok(Value::string(bytes))
}
