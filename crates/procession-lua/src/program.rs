//! Programs: what guests are made of.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use procession::{Child, CommandId, Exit, SpawnError, SpawnOptions};

use crate::guest::{Guest, Message};
use crate::output::Output;
use crate::value::Value;

/// What a process may allocate in its Lua state, unless the program says otherwise.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// Lua instructions in a step: about 100 us, as many as a few dozen messages cost.
const INSTRUCTIONS: u32 = 10_000;

/// A Lua program, and what its processes may do. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    /// Compiled, since each process loads it. Compilers run where they cannot be interrupted, too.
    pub(crate) code: Vec<u8>,
    /// Without what tells lines, which each process would hold as well.
    pub(crate) prelude: Vec<u8>,
    pub(crate) parts: Vec<(&'static str, Vec<u8>)>,
    pub(crate) memory_bytes: usize,
    pub(crate) instructions: u32,
    pub(crate) commands: Vec<(String, CommandId)>,
    pub(crate) reports: bool,
    pub(crate) out: Output,
    pub(crate) err: Output,
    /// Whether a process that has printed ends only once everything is written.
    pub(crate) settles: bool,
}

impl Program {
    /// Takes a source, and checks that it can be compiled. `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error`], if it is not Lua, with the line.
    pub fn load(name: impl Into<String>, source: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let (name, source) = (name.into(), source.into());
        let compile = |name: &str, source: &[u8], strip: bool| {
            let lua = mlua::Lua::new_with(mlua::StdLib::NONE, mlua::LuaOptions::new())?;
            let chunk = lua.load(source).set_mode(mlua::chunk::ChunkMode::Text).set_name(name);
            chunk.into_function().map(|function| function.dump(strip))
        };
        let failed = |error: mlua::Error| Error::Load { program: name.clone(), cause: error.to_string() };
        let code = compile(&format!("@{name}"), without_shebang(&source), false).map_err(failed)?;
        let library = |source: &str| compile("=procession", source.as_bytes(), true);
        let prelude = library(include_str!("prelude.lua")).map_err(failed)?;
        let parts =
            [("fs", include_str!("fs.lua")), ("net", include_str!("net.lua")), ("http", include_str!("http.lua"))];
        let parts = parts.into_iter().map(|(name, source)| library(source).map(|code| (name, code)));
        let parts = parts.collect::<mlua::Result<_>>().map_err(failed)?;
        let (out, err) = Output::standard();
        Ok(Self(Arc::new(Inner {
            name,
            code,
            prelude,
            parts,
            memory_bytes: MEMORY_BYTES,
            instructions: INSTRUCTIONS,
            commands: Vec::new(),
            reports: false,
            out,
            err,
            settles: true,
        })))
    }

    /// Reads a source out of a file. Blocks.
    ///
    /// # Errors
    /// [`Error`], if the file cannot be read, or is not Lua.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let source = fs::read(path).map_err(|cause| Error::Read { program: name.clone(), cause })?;
        Self::load(name, source)
    }

    /// What each process may allocate in its Lua state, in bytes. More is an error in Lua.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.0).memory_bytes = bytes;
        self
    }

    /// After how many Lua instructions a process gives way.
    #[must_use]
    pub fn instructions_per_step(mut self, count: u32) -> Self {
        Arc::make_mut(&mut self.0).instructions = count.max(100);
        self
    }

    /// Has processes that fail say so on standard error, all but `main`, whose failure is its starter's to tell.
    #[must_use]
    pub fn report_failures(mut self) -> Self {
        Arc::make_mut(&mut self.0).reports = true;
        self
    }

    /// Sets where processes print, and where they log and their failures are reported.
    ///
    /// By default, these are the standard streams ([`Output::standard`]), and a process that has
    /// printed ends only once everything printed is written, so that nothing is lost if the host
    /// exits after the process. With this setting, a process does not wait for its output when it
    /// ends. Call [`Output::flush`] before the host exits.
    #[must_use]
    pub fn output(mut self, out: Output, err: Output) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        (inner.out, inner.err, inner.settles) = (out, err, false);
        self
    }

    /// Lets processes call `command.NAME(value)`: the handler of `id` gets a [`Value`], and completes with one, then or later, from any thread. If it
    /// drops the completion, or completes with an error, the call gives `nil` and the cause.
    ///
    /// ```
    /// use procession::{CommandId, Completion, Scheduler, SpawnOptions};
    /// use procession_lua::{Program, Value};
    ///
    /// const UPPER: CommandId = CommandId::FIRST_FREE;
    ///
    /// let upper = |input: procession::Value, completion: Completion| {
    ///     // What is not text is not answered: the completion is dropped.
    ///     if let Ok(Value::String(text)) = input.downcast::<Value>().map(|value| *value) {
    ///         completion.complete(Ok(Box::new(Value::string(text.to_ascii_uppercase()))));
    ///     }
    /// };
    /// let scheduler = Scheduler::builder().handler(UPPER, upper).build()?;
    /// let source = "function main()
    ///   assert(command.upper('hello') == 'HELLO')
    ///   local none, cause = command.upper(1)
    ///   return cause
    /// end";
    /// let program = Program::load("shout", source)?.command("upper", UPPER);
    /// let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", [])?;
    /// assert_eq!(main.join(), Ok("the handler dropped the completion".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn command(mut self, name: impl Into<String>, id: CommandId) -> Self {
        Arc::make_mut(&mut self.0).commands.push((name.into(), id));
        self
    }

    /// Starts a process that calls the global function `function`.
    ///
    /// # Errors
    /// [`Error`]: the program has no such function or failed before it got there, or the scheduler takes no more processes.
    #[track_caller]
    pub fn spawn(
        &self,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        self.spawn_with(SpawnOptions::new(), function, arguments)
    }

    /// As [`spawn`](Self::spawn), with options. The label is the name of the function.
    ///
    /// # Errors
    /// [`Error`], also if the options bound the mailbox.
    #[track_caller]
    pub fn spawn_with(
        &self,
        options: SpawnOptions,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        let refused = |cause| Error::Start { program: self.0.name.clone(), function: function.to_owned(), cause };
        if options.mailbox_capacity().is_some() {
            return Err(refused(
                "the mailbox of a guest cannot be bounded, since answers that it waits for come by it".to_owned(),
            ));
        }
        let arguments: Vec<Value> = arguments.into_iter().collect();
        let started = options.label(function).spawn_process(Guest::new(self.clone()), function, Box::new(arguments));
        started.map_err(|error| refused(init_cause(&error)))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}

fn init_cause(error: &SpawnError<Guest>) -> String {
    use std::error::Error as _;
    let Some(init) = error.init_error() else { return error.to_string() };
    init.source().map_or_else(|| init.to_string(), ToString::to_string)
}

/// The source without a first line that is for the shell.
fn without_shebang(source: &[u8]) -> &[u8] {
    if !source.starts_with(b"#") {
        return source;
    }
    let end = source.iter().position(|&byte| byte == b'\n').unwrap_or(source.len());
    &source[end..]
}

/// Why a program did not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Its file cannot be read.
    Read {
        /// The file.
        program: String,
        /// Why.
        cause: io::Error,
    },
    /// It is not Lua.
    Load {
        /// Its name.
        program: String,
        /// Where it is wrong.
        cause: String,
    },
    /// A process of it was not started.
    Start {
        /// Its name.
        program: String,
        /// The function.
        function: String,
        /// Why.
        cause: String,
    },
    /// A process ended without a result.
    Ended(Exit),
}

impl From<Exit> for Error {
    fn from(exit: Exit) -> Self {
        Self::Ended(exit)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { program, cause } => write!(f, "cannot read {program}: {cause}"),
            Self::Load { program, cause } => write!(f, "cannot load {program}: {cause}"),
            Self::Start { program, function, cause } => write!(f, "cannot start {function} of {program}: {cause}"),
            Self::Ended(exit) => exit.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            Self::Ended(exit) => Some(exit),
            _ => None,
        }
    }
}
