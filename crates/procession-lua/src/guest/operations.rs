//! The operations that a guest may have to wait for.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::command::{BlockingWork, Command, CommandResult};
use procession::machine::Yields;
use procession::time::Instant;
use procession::{Pid, SpawnOptions};

use super::running::Running;
use super::waits::{Awaited, Cancel, Helper};
use super::{Content, Message};
use crate::fs::{self, Part, Writing};
use crate::library::{self, Arguments};
use crate::net::{self, Connection};
use crate::output::Output;
use crate::program::Program;
use crate::value::{Socket, Value};

/// Returns the tag of a call, which only the process that is called learns. Another guest cannot
/// guess it, and so cannot forge the answer.
fn call_tag(caller: Pid, number: u64) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one((caller, number))
}

/// The number of monitors that a process may have at a time.
const MONITORS_MAX: u32 = 1 << 16;

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

impl Running {
    pub(super) fn serve(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        Ok(match operation {
            b"receive" => Served::Waits(Awaited::Receive(deadline(arguments, 0)?)),
            b"sleep" => Served::Waits(Awaited::Sleep(
                deadline(arguments, 0)?.ok_or("argument 1 must be a number of milliseconds")?,
            )),
            b"yield" => Served::Yields,
            b"cancelled" => Served::Done(Value::Boolean(self.cancelled)),
            b"call" => {
                let to = arguments.target(0)?;
                let (value, until) = (arguments.value(1)?, deadline(arguments, 2)?);
                self.tag += 1;
                let tag = call_tag(yields.pid(), self.tag);
                let monitor = yields.monitor(to);
                let sent = library::send(to, Content::Call { from: yields.pid(), tag, value });
                if let Err(cause) = sent {
                    yields.demonitor(monitor);
                    return Err(cause.to_owned());
                }
                // If the process has ended, the monitor reports the reason.
                Served::Waits(Awaited::Answer { tag, monitor, until })
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
                if self.monitors == MONITORS_MAX {
                    return Err(format!("a process may have {MONITORS_MAX} monitors at a time"));
                }
                yields.monitor(arguments.target(0)?);
                self.monitors += 1;
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
                Served::Waits(Awaited::Done(self.tag, Cancel::Ignored, None))
            }
            _ => return self.serve_files_and_sockets(operation, arguments, yields),
        })
    }

    fn serve_files_and_sockets(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        Ok(match operation {
            b"fs.read" => {
                let (path, from) = (arguments.path(0)?, arguments.integer(1)?);
                let act = format!("cannot read {}", path.display());
                let from = u64::try_from(from).map_err(|_| format!("{act} from offset {from}"))?;
                let count = u64::try_from(arguments.integer(2)?).ok();
                let part = Part { from, count, most: arguments.1 as u64 };
                let work = fs::read(self.permissions.clone(), path, part);
                self.in_helper(yields, Cancel::Ignored, act, work)?
            }
            b"fs.size" => {
                let path = arguments.path(0)?;
                let act = format!("cannot get the size of {}", path.display());
                let work = fs::size(self.permissions.clone(), path);
                self.in_helper(yields, Cancel::Ignored, act, work)?
            }
            b"fs.write" | b"fs.append" => {
                let (path, bytes) = (arguments.path(0)?, arguments.bytes(1)?);
                let act = format!("cannot write {}", path.display());
                let how = if operation == b"fs.write" { Writing::New } else { Writing::Appended };
                let work = fs::write(self.permissions.clone(), path, bytes, how);
                self.in_helper(yields, Cancel::Ignored, act, work)?
            }
            b"connect" => {
                let (address, timeout) = (arguments.text(0)?, timeout(arguments, 1)?);
                let ends = Cancel::Ends { limited: timeout.is_some() };
                self.in_helper(
                    yields,
                    ends,
                    format!("cannot connect to {address}"),
                    net::connect(self.permissions.clone(), address, timeout),
                )?
            }
            b"listen" => {
                let address = arguments.text(0)?;
                let act = format!("cannot listen at {address}");
                self.permissions.check_listen().map_err(|error| format!("{act}: {error}"))?;
                self.in_helper(yields, Cancel::Ignored, act, net::listen(address))?
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
            b"read" => self.read(arguments, yields)?,
            b"write" => self.write(arguments, yields)?,
            _ => return Err("the runtime has no such operation".to_owned()),
        })
    }

    /// Reads from a connection. If nothing has arrived, the process waits.
    fn read(&mut self, arguments: &Arguments, yields: &Yields<'_>) -> Result<Served, String> {
        let connection = connection(arguments)?;
        let most = usize::try_from(arguments.integer(1)?).unwrap_or(1);
        let until = deadline(arguments, 2)?;
        let is_over = until.is_some_and(|until| until <= Instant::now());
        // Without time to wait, this is the last look.
        let read = if is_over { connection.read_now(most) } else { connection.try_read(most) };
        match read {
            Some(read) => Ok(Served::Done(read.map_err(|error| error.to_string())?)),
            None if is_over => Err("timeout".to_owned()),
            None => {
                self.waits = Awaited::Read { tag: 0, connection, most, until, helper: None };
                self.watch(yields)?;
                Ok(Served::WaitsToRead)
            }
        }
    }

    /// Writes to a connection. If it does not take everything, the process waits.
    fn write(&mut self, arguments: &Arguments, yields: &Yields<'_>) -> Result<Served, String> {
        let connection = connection(arguments)?;
        let bytes = arguments.bytes(1)?;
        match connection.try_write(&bytes).map_err(|error| error.to_string())? {
            all if all == bytes.len() => Ok(Served::Done(Value::Boolean(true))),
            some => {
                let work = connection.write(bytes, some, timeout(arguments, 2)?);
                self.in_helper(yields, Cancel::Ignored, String::new(), work)
            }
        }
    }

    /// Appends a line to an output. If it has no room, the process waits.
    pub(super) fn print(
        &mut self,
        output: &Output,
        arguments: &Arguments,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        let line = arguments.bytes(0)?;
        self.tag += 1;
        let turn = output.write(&line, || yields.completion(self.tag));
        Ok(turn.map_or(Served::Done(Value::Nil), |turn| {
            Served::Waits(Awaited::Output(self.tag, turn))
        }))
    }

    pub(super) fn in_helper<F>(
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
        Ok(Served::Waits(Awaited::Done(self.tag, cancel, Some(helper))))
    }
}

/// Returns the connection in the first argument.
fn connection(arguments: &Arguments) -> Result<Arc<Connection>, String> {
    match arguments.socket(0)? {
        Socket::Connection(connection) => Ok(connection),
        Socket::Listener(_) => Err("argument 1 must be a connection".to_owned()),
    }
}

/// Starts a process that performs `work`.
pub(super) fn start_helper<F>(
    yields: &Yields<'_>,
    tag: u64,
    act: String,
    work: F,
) -> Result<Helper, String>
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
pub(super) fn completed(result: CommandResult) -> Result<Value, Box<str>> {
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
pub(super) fn timeout(arguments: &Arguments, index: usize) -> Result<Option<Duration>, String> {
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

pub(super) fn deadline(arguments: &Arguments, index: usize) -> Result<Option<Instant>, String> {
    Ok(timeout(arguments, index)?.map(|timeout| Instant::now() + timeout))
}
