//! The steps of a guest that has started.

use mlua::MultiValue;
use procession::Exit;
use procession::machine::{Events, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::process::MonitorRef;

use super::operations::completed;
use super::state::{Awaited, Cancel, Running, Served};
use crate::account::Charge;
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::inbox::Received;
use crate::message::{Charged, Content, Message};
use crate::net::CANCELLED;
use crate::program::{Outcome, Program};
use crate::protect;
use crate::value::{self, Value};

/// The result of a run.
pub(super) enum Ran {
    /// The process is in a receive, and an upgrade was asked for.
    MayUpgrade,
    Until(Status<Value>),
}

impl Running {
    pub(super) fn handle_events(
        &mut self,
        events: &mut Events<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        events.try_for_each(|event| self.handle_event(event, yields))
    }

    pub(super) fn handle_event(
        &mut self,
        event: Event<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        match event {
            Event::Message(Message::Plain(value)) => {
                self.content(Content::Plain(value), None, yields)?;
            }
            Event::Message(Message::Call { from, tag, value }) => {
                self.content(Content::Call { from, tag, value }, None, yields)?;
            }
            Event::Message(Message::RemoteCall { call, value }) => {
                self.content(Content::RemoteCall { call, value }, None, yields)?;
            }
            Event::Message(Message::Answer { tag, value }) => {
                self.content(Content::Answer { tag, value }, None, yields)?;
            }
            Event::Message(Message::Charged(Charged { content, charge })) => {
                self.content(content, Some(charge), yields)?;
            }
            Event::Message(Message::Exit { from, exit }) => {
                self.content(Content::Exit { from, exit }, None, yields)?;
            }
            Event::Message(Message::Upgrade(upgrade)) => {
                if let Some(before) = self.asked.replace(upgrade) {
                    before.report(Outcome::Superseded);
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
                Awaited::Answer { monitor, .. } if monitor == down.monitor => {
                    self.waits = Awaited::Ready(self.given(Err(down.exit.to_string().into()))?);
                }
                // Its call was answered by an event before this one.
                _ if self.answered == Some(down.monitor) => self.answered = None,
                _ => {
                    let charge = self.account.charge_end(&down.exit);
                    let ended = Received::Ended(Some(down.pid), down.exit, true);
                    self.budget.inbox.push(ended, Some(charge));
                }
            },
            Event::Exit(signal) => {
                let charge = self.account.charge_end(&signal.exit);
                let ended = Received::Ended(signal.from, signal.exit, false);
                self.budget.inbox.push(ended, Some(charge));
            }
            _ => {}
        }
        Ok(())
    }

    fn content(
        &mut self,
        content: Content,
        charge: Option<Charge>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        let received = match content {
            Content::Plain(value) => Received::Message(value),
            Content::Call { from, tag, value } => Received::Call(from, tag, value),
            Content::RemoteCall { call, value } => Received::RemoteCall(call, value),
            #[cfg(feature = "cluster")]
            Content::News { kind, value } => Received::News(kind, value),
            Content::Answer { tag, value } => {
                if let Awaited::Answer { tag: wanted, monitor, .. } = self.waits
                    && wanted == tag
                {
                    self.end_monitor(monitor, yields);
                    self.waits = Awaited::Ready(self.given(Ok(value))?);
                }
                return Ok(());
            }
            Content::Done { tag, value } => return self.done(tag, Ok(value), yields),
            Content::Exit { from, exit } if self.account.traps() => {
                Received::Ended(Some(from), exit, false)
            }
            // It has stopped to trap exits since the exit was sent.
            Content::Exit { exit: Exit::Normal, .. } => return Ok(()),
            Content::Exit { exit, .. } => {
                procession::process::send_exit(yields.pid(), exit);
                return Ok(());
            }
        };
        self.budget.inbox.push(received, charge);
        Ok(())
    }

    /// Ends the monitor of a call that was answered. The end of the process that was called may be
    /// among the events that this one handles now.
    fn end_monitor(&mut self, monitor: MonitorRef, yields: &mut Yields<'_>) {
        if !yields.demonitor(monitor) {
            self.answered = Some(monitor);
        }
    }

    pub(super) fn done(
        &mut self,
        tag: u64,
        result: Result<Value, Box<str>>,
        yields: &mut Yields<'_>,
    ) -> Result<(), Failure> {
        match &self.waits {
            Awaited::Done(wanted, ..) | Awaited::Output(wanted, _) if *wanted == tag => {
                let is_passed = matches!(self.waits, Awaited::Done(_, Cancel::Passed { .. }, _));
                self.cancel_seen |=
                    is_passed && result.as_ref().is_err_and(|cause| **cause == *CANCELLED);
                self.waits = Awaited::Ready(self.given(result)?);
            }
            // The process that was called could not take the request.
            &Awaited::Answer { tag: wanted, monitor, .. } if wanted == tag => {
                self.end_monitor(monitor, yields);
                self.waits = Awaited::Ready(self.given(result)?);
            }
            Awaited::Read { tag: wanted, connection, taken, .. } if *wanted == tag => {
                // Read here the bytes that the wait was for. If a cancel arrives before the process
                // continues, they are not lost.
                let read = result.and_then(|_| {
                    Ok(taken
                        .take(connection, false)
                        .transpose()
                        .map_err(|error| error.to_string())?)
                });
                match read.transpose() {
                    Some(read) => self.waits = Awaited::Ready(self.given(read)?),
                    // The wake-up was spurious.
                    None => self.watch(yields)?,
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn run(
        &mut self,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Ran, Failure> {
        self.budget.renew();
        // Before the first wait, and before an upgrade, a receive must suspend the program.
        self.budget.inbox.begin(self.has_waited && self.asked.is_none());
        let ran = self.run_on(program, yields);
        self.budget.inbox.end();
        if matches!(ran, Ok(Ran::MayUpgrade | Ran::Until(Status::Continue | Status::Wait(_)))) {
            self.watch_client(yields);
        }
        ran
    }

    fn run_on(&mut self, program: &Program, yields: &mut Yields<'_>) -> Result<Ran, Failure> {
        while self.budget.inbox.count() {
            if self.asked.is_some() && matches!(self.waits, Awaited::Receive(_)) {
                return Ok(Ran::MayUpgrade);
            }
            let Some(given) = self.ready(yields)? else {
                return Ok(Ran::Until(Status::Wait(WaitingFor::Either)));
            };
            let mut yielded = self.thread.resume::<MultiValue>(given)?;
            if self.thread.is_finished() {
                let result = protect::outcome(yielded)?;
                let result = value::take(&result, self.budget.allowance(&self.lua))
                    .map_err(|error| format!("the result of the process: {error}"))?;
                return Ok(Ran::Until(Status::Done(result)));
            }
            // The hook yields no value. Inside of a coroutine that becomes `nil`.
            let Some(mlua::Value::String(operation)) = yielded.pop_front() else {
                self.waits = Awaited::Ready(MultiValue::new());
                return Ok(Ran::Until(Status::Continue));
            };
            let arguments = Arguments(yielded, self.budget.allowance(&self.lua));
            match self.serve(&operation.as_bytes(), &arguments, program, yields) {
                Ok(Served::Done(value)) => self.waits = Awaited::Ready(self.given(Ok(value))?),
                Ok(Served::Waits(waits)) => {
                    // Output is no wait for the world.
                    self.has_waited |= !matches!(waits, Awaited::Output(..));
                    self.waits = waits;
                }
                Ok(Served::WaitsToRead) => self.has_waited = true,
                Ok(Served::Yields) => {
                    self.waits = Awaited::Ready(self.given(Ok(Value::Nil))?);
                    return Ok(Ran::Until(Status::Continue));
                }
                Err(cause) => self.waits = Awaited::Ready(self.given(Err(cause.into()))?),
            }
        }
        Ok(Ran::Until(Status::Continue))
    }

    /// Performs the steps that are left at the end of the process, and ends it.
    pub(super) fn end(
        &mut self,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Value>, Failure> {
        let (out, err) = (&program.inner().out, &program.inner().err);
        while matches!(self.waits, Awaited::Ready(_))
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
                self.waits = Awaited::Output(tag, turn);
            }
        }
        match self.ending.take_if(|_| matches!(self.waits, Awaited::Ready(_))) {
            Some(ending) => ending.result.map(Status::Done),
            None => Ok(Status::Wait(WaitingFor::Either)),
        }
    }
}
