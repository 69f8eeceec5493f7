//! The starts of guests: by their host, by the library, and by supervisors.

use std::sync::Arc;

use mlua::Lua;
use procession::machine::CommandId;
use procession::process::SpawnError;
use procession::supervisor::ChildSpec;
use procession::{Child, Pid, SpawnOptions};

use super::{Guest, Guests};
use crate::budget::Budget;
use crate::entry::Entry;
use crate::failure::{Error, cleaned, label};
use crate::host::Host;
use crate::library;
use crate::message::Message;
use crate::permissions::Bounds;
use crate::program::Program;
use crate::source::{compile, load_error};
use crate::value::Value;

impl Program {
    /// Starts a process that calls the global function `function`.
    ///
    /// # Errors
    /// Returns an [`Error`] if the program has no such function, if it fails before the function is
    /// called, or if the scheduler accepts no more processes.
    #[track_caller]
    pub fn spawn(
        &self,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        self.spawn_with(SpawnOptions::new(), function, arguments)
    }

    /// Starts a process like [`spawn`](Self::spawn), with options. Its label is the name of the
    /// function.
    ///
    /// # Errors
    /// Returns an [`Error`] if [`spawn`](Self::spawn) does, or if the options bound the mailbox.
    #[track_caller]
    pub fn spawn_with(
        &self,
        options: SpawnOptions,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        self.spawn_bounded(self.inner().permissions.clone().into(), options, function, arguments)
    }

    /// Starts a process within these bounds.
    #[track_caller]
    pub(crate) fn spawn_bounded(
        &self,
        bounds: Bounds,
        options: SpawnOptions,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        let refused = |cause| Error::Start {
            program: self.inner().name.clone(),
            function: function.to_owned(),
            cause,
        };
        if options.mailbox_capacity().is_some() {
            return Err(refused(
                "the mailbox of a guest cannot be bounded, since it also receives the answers that the guest waits for"
                    .to_owned(),
            ));
        }
        let arguments: Vec<Value> = arguments.into_iter().collect();
        let guest = Guest::bounded(self.clone(), bounds);
        let account = guest.account();
        let started =
            options.label(label(function)).try_start_machine(guest, function, Box::new(arguments));
        let child = started.map_err(|error| refused(init_cause(&error)))?;
        account.enter(child.pid());
        Ok(child)
    }

    /// Starts a process that evaluates lines of Lua in the state of a process of this program, and
    /// prints the results.
    ///
    /// The handler of the command `read` gets each line: its input is the [`Value::Boolean`] `true`
    /// if the line continues a statement, and it completes with a [`Value::String`], or with
    /// [`Value::Nil`] at the end of the input. The process ends then. It does not end at a cancel,
    /// unless [`SpawnOptions::on_cancel`] says so.
    ///
    /// # Errors
    /// Returns an [`Error`] if [`spawn_with`](Self::spawn_with) does.
    #[track_caller]
    pub fn repl(
        &self,
        options: SpawnOptions,
        read: CommandId,
    ) -> Result<Child<Message, Value>, Error> {
        let failed = |error| load_error(&self.inner().name, &error);
        let addition =
            compile("=procession", include_bytes!("../lua/repl.lua"), true).map_err(failed)?;
        let program = self.clone().command("repl read", read);
        let program = program.with(|inner| inner.addition = Some(addition));
        program.spawn_with(options, "procession repl", [])
    }

    /// Returns `true` if a process of this program finds a global function with this name.
    ///
    /// # Errors
    /// Returns an [`Error`] if the program fails before one of its functions is called.
    pub fn has_function(&self, name: &str) -> Result<bool, Error> {
        let found = self.open().and_then(|lua| lua.globals().raw_get::<mlua::Value>(name));
        let is_function = found.map(|value| value.is_function());
        is_function.map_err(|error| Error::Start {
            program: self.inner().name.clone(),
            function: name.to_owned(),
            cause: cleaned(&error.to_string()),
        })
    }

    /// Opens a state of this program in which no process runs.
    pub(crate) fn open(&self) -> mlua::Result<Lua> {
        let (inner, most) = (self.inner(), usize::MAX);
        let budget = Arc::new(Budget::new(inner.instructions));
        library::open(&Guests, self, &inner.permissions.clone().into(), most, &budget)
    }
}

fn init_cause(error: &SpawnError<Guest>) -> String {
    use std::error::Error as _;
    let Some(init) = error.init_error() else { return error.to_string() };
    init.source().map_or_else(|| init.to_string(), ToString::to_string)
}

impl Host for Guests {
    fn spawn(
        &self,
        program: &Program,
        entry: &Entry,
        options: SpawnOptions,
        arguments: Vec<Value>,
    ) -> Result<Pid, String> {
        let started = program.spawn_bounded(entry.bounds(), options, &entry.function, arguments);
        Ok(started.map_err(|error| error.to_string())?.detach().pid())
    }

    fn child(
        &self,
        id: String,
        program: Program,
        entry: Entry,
        input: Box<dyn Fn() -> Vec<Value> + Send + Sync>,
    ) -> ChildSpec {
        let function = entry.function.clone();
        let make = move || Guest::bounded(program.current(), entry.bounds());
        let input = move || -> procession::machine::Value { Box::new(input()) };
        ChildSpec::machine(id, make, function, input).untyped()
    }
}
