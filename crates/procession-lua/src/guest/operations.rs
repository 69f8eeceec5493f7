//! The operations that a guest may have to wait for.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use procession::machine::{BlockingWork, Command, CommandResult, Yields};
use procession::sync::CancellationToken;
use procession::{Address, Pid};

use super::state::{Awaited, Cancel, Running, Served};
use super::timers::Charges;
use crate::account::MONITORS_MAX;
use crate::arguments::Arguments;
use crate::ends;
use crate::input::{self, Wanted};
use crate::message::{self, Content, Message};
use crate::output::Output;
use crate::program::Program;
use crate::supervisors::{self, Parent};
use crate::value::Value;

/// Returns the tag of a call, which only the process that is called learns. Another guest cannot
/// guess it, and so cannot forge the answer.
fn call_tag(caller: Pid, number: u64) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one((caller, number))
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
            b"receive" => Served::Waits(Awaited::Receive(arguments.deadline(0)?)),
            b"sleep" => Served::Waits(Awaited::Sleep(
                arguments.deadline(0)?.ok_or("argument 1 must be a number of milliseconds")?,
            )),
            b"yield" => Served::Yields,
            b"cancelled" => Served::Done(Value::Boolean(self.cancelled)),
            b"call" => {
                let to = arguments.target(0)?;
                let value = arguments.value(1)?;
                if to.node() != 0 {
                    let timeout = arguments.duration(2)?;
                    let work = program.inner().node.call(to, &value, timeout)?;
                    return self.in_helper(yields, Cancel::Ignored, String::new(), work);
                }
                let until = arguments.deadline(2)?;
                self.tag += 1;
                let tag = call_tag(yields.pid(), self.tag);
                let monitor = yields.monitor(to);
                let sent = message::send(to, Content::Call { from: yields.pid(), tag, value });
                if let Err(cause) = sent {
                    yields.demonitor(monitor);
                    return Err(cause.to_owned());
                }
                // If the process has ended, the monitor reports the reason.
                Served::Waits(Awaited::Answer { tag, monitor, until })
            }
            b"link" => {
                let to = arguments.target(0)?;
                ends::check(program, &self.bounds, to, "link")?;
                message::check_link(yields.pid(), Some(to))?;
                yields.link(to);
                Served::Done(Value::Boolean(true))
            }
            b"unlink" => {
                yields.unlink(arguments.target(0)?);
                Served::Done(Value::Boolean(true))
            }
            b"monitor" => {
                if self.monitors >= MONITORS_MAX {
                    return Err(format!("a process may have {MONITORS_MAX} monitors at a time"));
                }
                let to = arguments.target(0)?;
                if !self.account.has_room() {
                    return Err(message::OWN_FULL.to_owned());
                }
                Served::Done(self.monitor(to, yields))
            }
            // Only the library does so, for a process that it has just spawned. What bounds these
            // processes also bounds their ends. If this needed room in the mailbox, any process
            // could end a server: it would fill its mailbox.
            b"monitor child" => Served::Done(self.monitor(arguments.target(0)?, yields)),
            b"trap" => {
                let traps = arguments.value(0)? != Value::Boolean(false);
                self.account.set_traps(traps);
                Served::Done(Value::Boolean(yields.trap_exits(traps)))
            }
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
            b"send after" => {
                let delay = arguments.duration(0)?.ok_or("argument 1 must be a number")?;
                let (to, content) = (arguments.target(1)?, Content::Plain(arguments.value(2)?));
                if to.node() != 0 {
                    return Err("a process of another node cannot be sent to later".to_owned());
                }
                if Address::<Message>::of(to).is_err() {
                    return Ok(Served::Done(false.into()));
                }
                let charges = Charges::new(program, &self.bounds, &self.account, content.size())?;
                Served::Done(self.timers.send_after(delay, to, content, charges)?.into())
            }
            b"cancel timer" => Served::Done(match arguments.0.front() {
                // The result of a `send_after` that was refused.
                Some(mlua::Value::Boolean(false)) => false.into(),
                _ => self.timers.cancel(arguments.integer(0)?).into(),
            }),
            b"input" => {
                if !program.inner().input {
                    return Err("the host gives the program no standard input".to_owned());
                }
                let (wanted, most) = (wanted(arguments)?, arguments.1);
                let token = CancellationToken::new();
                let work = input::read(token.clone(), wanted, most);
                let passed = Cancel::Passed { limited: false, token };
                self.in_helper(yields, passed, String::new(), work)?
            }
            _ => match operation.strip_prefix(b"supervisor.") {
                Some(operation) => {
                    let parent = Parent::new(self.host, program, &self.bounds, &self.account);
                    let asked = supervisors::ask(operation, arguments, &parent)?;
                    self.in_helper(yields, Cancel::Ignored, String::new(), asked)?
                }
                None => return self.serve_outside(operation, arguments, program, yields),
            },
        })
    }

    fn monitor(&mut self, to: Pid, yields: &mut Yields<'_>) -> Value {
        yields.monitor(to);
        self.monitors += 1;
        Value::Boolean(true)
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
}

/// Returns the part of the input that an operation reads.
fn wanted(arguments: &Arguments) -> Result<Wanted, String> {
    Ok(match &*arguments.bytes(0)? {
        b"line" => Wanted::Line { with_end: false },
        b"full line" => Wanted::Line { with_end: true },
        b"all" => Wanted::All,
        _ => Wanted::Count(usize::try_from(arguments.integer(1)?).unwrap_or(0)),
    })
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
