//! Guests: processes written in Lua.

mod messages;
mod operations;
mod outside;
mod running;
mod start;
mod state;
mod timers;
mod upgrade;
mod waits;

use std::error::Error;
use std::sync::Arc;

use mlua::{MultiValue, Thread};
use procession::machine::{Events, InitError, Process, Status, Yields, is_terminated};

use self::running::Ran;
use self::state::{Awaited, Ending, Running};
use self::timers::Timers;
use crate::account::Account;
use crate::budget::Budget;
use crate::failure::{Failure, cleaned, label};
use crate::library;
use crate::limits::{Hold, Resource};
use crate::message::Message;
use crate::permissions::Bounds;
use crate::program::{Member, Program, Upgrade};
use crate::protect;
use crate::value::{self, Value};

/// A process of a [`Program`].
///
/// Its method is the global function that it calls. Its input is a `Vec<Value>` of arguments, or
/// `()` for none.
#[derive(Debug)]
pub struct Guest {
    program: Program,
    /// They stay the same when the program is replaced.
    bounds: Bounds,
    /// The charges for the process and its memory, from its start to its end.
    charges: Option<(Hold, Hold)>,
    method: Box<str>,
    running: Option<Running>,
    /// The upgrade that has begun.
    attempt: Option<Attempt>,
    /// `None` before the first step, and outside of deployments.
    member: Option<Member>,
    account: Arc<Account>,
}

/// The phase of an upgrade that has begun.
#[derive(Debug)]
enum Attempt {
    /// The function `upgrade` runs.
    Saves { upgrade: Upgrade, thread: Thread, given: MultiValue, steps: u32 },
    /// The new function runs and has not waited yet. The old state is kept.
    Tries { upgrade: Upgrade, old: Box<Running>, before: Program, steps: u32 },
}

/// The host of the library: it starts guests.
#[derive(Debug)]
pub(crate) struct Guests;

impl Guest {
    /// Creates a process of `program` for [`procession::SpawnOptions::try_start_machine`].
    /// [`Program::spawn`] does both.
    pub fn new(program: Program) -> Self {
        let permissions = program.inner().permissions.clone();
        Self::bounded(program, permissions.into())
    }

    pub(crate) fn bounded(program: Program, bounds: Bounds) -> Self {
        let (messages, bytes) = program.mailbox(&bounds);
        let account = Account::new(messages, bytes, program.owner(&bounds));
        Self {
            program,
            bounds,
            charges: None,
            method: "".into(),
            running: None,
            attempt: None,
            member: None,
            account,
        }
    }

    pub(crate) fn account(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }

    /// Opens a state of at most `most` bytes, in which the function with this name is about to run.
    fn start(&self, method: &str, arguments: &[Value], most: usize) -> Result<Running, InitError> {
        let budget = Budget::new(self.program.inner().instructions);
        let budget = match &self.running {
            Some(old) => budget.after(&old.budget),
            None => budget,
        };
        let budget = Arc::new(budget);
        let started = self.start_with(Arc::clone(&budget), method, arguments, most);
        // The program has computed in the step of another process, even if it has failed.
        self.bounds.limits.add_steps(budget.take_steps());
        started
    }

    fn start_with(
        &self,
        budget: Arc<Budget>,
        method: &str,
        arguments: &[Value],
        most: usize,
    ) -> Result<Running, InitError> {
        let refused = |error: mlua::Error| InitError::Refused(cleaned(&error.to_string()).into());
        let lua =
            library::open(&Guests, &self.program, &self.bounds, most, &budget).map_err(refused)?;
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
        // The search may have called `__index` of the program.
        budget.set_started();
        let thread = protect::thread(&lua).map_err(refused)?;
        let given = arguments.iter().map(|argument| value::give(&lua, argument));
        let given = std::iter::once(Ok(mlua::Value::Function(function)))
            .chain(given)
            .collect::<mlua::Result<MultiValue>>();
        let waits = Awaited::Ready(given.map_err(refused)?);
        Ok(Running {
            host: &Guests,
            lua,
            bounds: self.bounds.clone(),
            account: self.account(),
            thread,
            budget,
            waits,
            tag: 0,
            timer: None,
            timers: Timers::default(),
            answered: None,
            client: None,
            monitors: 0,
            cancelled: false,
            cancel_seen: false,
            has_waited: false,
            asked: None,
            ending: None,
        })
    }
}

impl Process for Guest {
    type Input = procession::machine::Value;
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
        let refused = |cause: String| InitError::Refused(cause.into());
        let process = self.bounds.limits.hold(Resource::Processes).map_err(refused)?;
        let mut memory = self.bounds.limits.memory();
        let running = self.start(method, &arguments, memory.most())?;
        memory.set(running.lua.used_memory());
        memory.check().map_err(refused)?;
        (self.running, self.charges) = (Some(running), Some((process, memory)));
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<Message>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Value>, Box<dyn Error + Send + Sync>> {
        if let Some(run) = &self.program.inner().repeatable
            && !run.take_step()
        {
            return Err("the processes of the test performed too many steps".into());
        }
        if !self.account.is_entered() {
            self.account.enter(yields.pid());
        }
        self.join(yields);
        let step = self.bounds.limits.charge(Resource::Steps, 1);
        self.limit_memory()?;
        let running = self.running.as_mut().ok_or("a guest cannot step before its init")?;
        let handled = running.handle_events(events, yields);
        if running.ending.is_none() {
            let ran = handled.and(step.map_err(Into::into)).and_then(|()| self.run(yields));
            if let Some(running) = &self.running {
                let figures = running.figures();
                self.account.note(figures);
                // The step itself was charged before.
                self.bounds.limits.add_steps(running.budget.take_steps().saturating_sub(1));
                if let Some((_, memory)) = &mut self.charges {
                    memory.set(figures.memory);
                }
            }
            let result = match ran {
                Ok(Status::Done(value)) => Ok(value),
                // It failed because it is terminated, which is the reason of its end.
                Err(_) if is_terminated() => return Ok(Status::Continue),
                Err(failure) => Err(failure),
                Ok(status) => return Ok(status),
            };
            self.begin_end(result, yields)?;
        }
        let running = self.running.as_mut().ok_or("a guest cannot step before its init")?;
        running.end(&self.program, yields)
    }

    fn close(&mut self) {
        (self.running, self.attempt, self.member) = (None, None, None);
        self.charges = None;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.account.remove();
    }
}

impl Guest {
    /// Becomes a member of the deployment of its program, in the first step.
    fn join(&mut self, yields: &mut Yields<'_>) {
        if self.member.is_none()
            && let Some(link) = &self.program.inner().deployment
        {
            let (member, upgrade) = link.join(yields.pid(), self.program.version());
            self.member = Some(member);
            if let Some(running) = &mut self.running {
                running.asked = upgrade;
            }
            self.show_version(yields);
        }
    }

    /// Limits the memory of the state to what the processes around leave.
    fn limit_memory(&mut self) -> Result<(), Failure> {
        if let (Some((_, memory)), Some(running)) = (&self.charges, &mut self.running)
            && self.bounds.limits.0.is_some()
        {
            let most = memory.most().clamp(1, self.program.inner().memory_bytes);
            running.budget.limit_memory(&running.lua, most)?;
        }
        Ok(())
    }

    /// Runs the program until it waits or ends. If the new program of an upgrade fails, the process
    /// continues in its old state.
    fn run(&mut self, yields: &mut Yields<'_>) -> Result<Status<Value>, Failure> {
        loop {
            if self.upgrade(yields)? {
                return Ok(Status::Continue);
            }
            let running = self.running.as_mut().ok_or("a guest cannot step before its init")?;
            match running.run(&self.program, yields) {
                Ok(Ran::MayUpgrade) => {}
                Ok(Ran::Until(status @ Status::Done(_))) => {
                    self.commit(yields);
                    return Ok(status);
                }
                Ok(Ran::Until(status)) => {
                    let is_asked = self.commit_if_it_waited(yields);
                    return Ok(if is_asked { Status::Continue } else { status });
                }
                Err(failure) if self.is_final(&failure, yields) => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// Begins the end of the process: its function has ended.
    fn begin_end(
        &mut self,
        result: Result<Value, Failure>,
        yields: &Yields<'_>,
    ) -> Result<(), Failure> {
        let result = result.map_err(|failure| Failure::from(cleaned(&failure.to_string())));
        let running = self.running.as_mut().ok_or("a guest cannot step before its init")?;
        let inner = self.program.inner();
        let failure = result.as_ref().err().filter(|_| inner.reports && *self.method != *"main");
        let report = failure
            .map(|failure| format!("{} {} failed: {failure}\n", yields.pid(), label(&self.method)));
        let settle = inner.settles && (report.is_some() || running.budget.has_printed());
        running.ending = Some(Ending { result, report, settle_out: settle, settle_err: settle });
        running.waits = Awaited::Ready(MultiValue::new());
        Ok(())
    }
}
