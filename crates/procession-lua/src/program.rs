//! Programs, of which guests are the processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use procession::command::CommandId;
use procession::{Child, SpawnError, SpawnOptions};

use crate::account;
use crate::budget::Budget;
use crate::cluster::OwnNode;
use crate::deployment::Link;
use crate::failure::{Error, cleaned, label};
use crate::guest::Guest;
use crate::library;
use crate::limits::Limits;
use crate::message::Message;
use crate::modules::Modules;
use crate::output::Output;
use crate::owner::{Owner, ProgramId};
use crate::permissions::{Bounds, Permissions};
use crate::repeatable::RepeatableRun;
use crate::source::{PARTS, Part, compile, load_error, lua_text};
use crate::tls::Tls;
use crate::value::Value;
use crate::version::Version;

/// The default limit of the memory that a process may allocate in its Lua state, in bytes.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// The default number of Lua instructions in a step. They take about 100 us, the time of a few
/// dozen messages.
const INSTRUCTIONS: u32 = 10_000;

/// A Lua program, and the limits of its processes. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    /// The same for all versions of a deployment.
    pub(crate) id: ProgramId,
    /// Counts the messages for later of all processes. The same for all versions of a deployment.
    pub(crate) later: Limits,
    pub(crate) version: Version,
    /// Compiled, since each process loads it. The compiler also runs where it cannot be
    /// interrupted.
    pub(crate) code: Vec<u8>,
    /// Compiled without line information, which each process would hold as well.
    pub(crate) prelude: Vec<u8>,
    pub(crate) modules: Modules,
    pub(crate) parts: Vec<Part>,
    pub(crate) memory_bytes: usize,
    pub(crate) mailbox_messages: usize,
    pub(crate) instructions: u32,
    pub(crate) commands: Vec<(String, CommandId)>,
    pub(crate) permissions: Permissions,
    /// The names that processes may not register.
    pub(crate) reserved: Vec<String>,
    pub(crate) reports: bool,
    /// `true` if processes may read standard input.
    pub(crate) input: bool,
    pub(crate) out: Output,
    pub(crate) err: Output,
    /// If `true`, a process that has printed ends only once everything is written.
    pub(crate) settles: bool,
    /// A chunk that runs after the program.
    pub(crate) addition: Option<Vec<u8>>,
    pub(crate) repeatable: Option<Arc<RepeatableRun>>,
    pub(crate) deployment: Option<Link>,
    pub(crate) node: OwnNode,
    pub(crate) tls: Tls,
}

impl Program {
    /// Loads a program from source, and checks that it compiles. `name` is the name of the program
    /// in errors.
    ///
    /// # Errors
    /// If the source is not valid Lua, returns an [`Error`] that contains the line.
    pub fn load(name: impl Into<String>, source: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let (name, source) = (name.into(), source.into());
        let failed = |error: mlua::Error| load_error(&name, &error);
        let code = compile(&format!("@{name}"), lua_text(&source), false).map_err(failed)?;
        let library = |source: &str| compile("=procession", source.as_bytes(), true);
        let prelude = library(include_str!("lua/prelude.lua")).map_err(failed)?;
        let parts = PARTS.iter().map(|&(name, source)| library(source).map(|code| (name, code)));
        let parts = parts.collect::<mlua::Result<_>>().map_err(failed)?;
        let (out, err) = Output::standard();
        Ok(Self(Arc::new(Inner {
            name,
            id: ProgramId::draw(),
            later: Limits::of_program(),
            version: Version::of(&source),
            code,
            prelude,
            modules: Modules::default(),
            parts,
            memory_bytes: MEMORY_BYTES,
            mailbox_messages: account::MESSAGES,
            instructions: INSTRUCTIONS,
            commands: Vec::new(),
            permissions: Permissions::none(),
            reserved: Vec::new(),
            reports: false,
            input: false,
            out,
            err,
            settles: true,
            addition: None,
            repeatable: None,
            deployment: None,
            node: OwnNode::default(),
            tls: Tls::default(),
        })))
    }

    /// Returns the version of the program: a hash of its source and of its modules, as 16
    /// hexadecimal digits.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Loads a program from a file, and the modules that it requires from files below the folder of
    /// that file: `a.b` from `a/b.lua`. Modules are found by literal names in `require "name"`, and
    /// compiled once. Links that lead out of the folder are refused.
    ///
    /// # Blocking
    /// Blocks the calling thread while it reads the files.
    ///
    /// # Errors
    /// Returns an [`Error`] if a file cannot be read, or is not valid Lua. A module without a file
    /// is an error only when it is required. If there are modules, the system must have `openat2`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let source =
            fs::read(path).map_err(|cause| Error::Read { program: name.clone(), cause })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (mut modules, version) = Modules::read(folder, &source)?;
        modules.files.push(path.to_owned());
        let mut program = Self::load(name, source)?;
        let inner = Arc::make_mut(&mut program.0);
        (inner.modules, inner.version) = (modules, version);
        Ok(program)
    }

    /// Adds a module, which programs get by `require(name)`. It replaces one of the same name.
    ///
    /// # Errors
    /// If the source is not valid Lua, returns an [`Error`] that contains the line.
    ///
    /// # Examples
    /// ```
    /// use procession_lua::{Program, Value};
    ///
    /// let source = "function main() return require('shapes').square(3) end";
    /// let shapes = "return { square = function(side) return side * side end }";
    /// let program = Program::load("area", source)?.module("shapes", shapes)?;
    /// let area = procession::run(async {
    ///     program.spawn("main", [])?.await.map_err(procession_lua::Error::from)
    /// })?;
    /// assert_eq!(area, Value::Integer(9));
    /// # Ok::<(), procession_lua::Error>(())
    /// ```
    pub fn module(
        mut self,
        name: impl Into<String>,
        source: impl AsRef<[u8]>,
    ) -> Result<Self, Error> {
        let (name, source) = (name.into(), source.as_ref());
        let code = compile(&format!("@{name}"), lua_text(source), false);
        let code = code.map_err(|error| load_error(&name, &error))?;
        let inner = Arc::make_mut(&mut self.0);
        inner.version = inner.version.with(name.as_bytes()).with(source);
        inner.modules.codes.insert(name, code);
        Ok(self)
    }

    /// Returns the files that the program was read from: those of its modules, and its own.
    pub fn files(&self) -> &[PathBuf] {
        &self.0.modules.files
    }

    /// Sets the number of bytes that each process may allocate in its Lua state. An allocation
    /// beyond that raises an error in Lua.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.0).memory_bytes = bytes;
        self
    }

    /// Sets the number of messages that may wait for each process. Default: 1 048 576.
    ///
    /// The values of these messages may together have half as many bytes as
    /// [`memory_limit`](Self::memory_limit). If a message of another guest does not fit, it is
    /// refused, and its sender learns that. Messages from Rust are not counted.
    ///
    /// For a process of the host, guests may let 1 048 576 messages wait, and as many of a size as
    /// have 32 MiB together, or twice that with answers to its calls. [`SpawnOptions::mailbox`]
    /// bounds it further. With [`WhenFull::Kill`](procession::mailbox::WhenFull::Kill), guests can
    /// end the process: any of them may fill its mailbox.
    #[must_use]
    pub fn mailbox_limit(mut self, messages: usize) -> Self {
        Arc::make_mut(&mut self.0).mailbox_messages = messages;
        self
    }

    /// Sets the number of Lua instructions after which a process yields to others.
    #[must_use]
    pub fn instructions_per_step(mut self, count: u32) -> Self {
        Arc::make_mut(&mut self.0).instructions = count.max(100);
        self
    }

    /// Sets the permissions of the processes that are spawned from Rust. Those that they spawn have
    /// the same, or fewer. Default: [`Permissions::none`].
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        Arc::make_mut(&mut self.0).permissions = permissions;
        self
    }

    /// Keeps a name for the host: no process of the program may register it. Otherwise a process
    /// could take it before the host does, or while a supervisor of the host restarts its owner.
    ///
    /// A program that replaces this one in a [`Deployment`](crate::Deployment) must keep the name
    /// itself.
    #[must_use]
    pub fn reserve_name(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).reserved.push(name.into());
        self
    }

    /// Gives the processes a node: they use processes of other nodes by the functions of `node`,
    /// and those that have registered names are reached by these.
    ///
    /// A process may name processes of nodes that its [`Permissions`] include, as those to connect
    /// to do. A PID that it was sent is itself a permission. Of a program with a node, all nodes
    /// that can connect may send to the processes that have names.
    ///
    /// ```
    /// use procession_cluster::{Cookie, Node};
    /// use procession_lua::{Program, Value};
    ///
    /// let program = Program::load("named", "function main() return node.name() end")?;
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let node = Node::builder("shop@127.0.0.1").cookie(cookie).start().await?;
    ///     let name = program.node(node).spawn("main", [])?.await?;
    ///     assert_eq!(name, Value::string("shop@127.0.0.1"));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    #[must_use]
    pub fn node(mut self, node: procession_cluster::Node) -> Self {
        Arc::make_mut(&mut self.0).node = OwnNode::new(node);
        self
    }

    /// Sets the certificates for the connections of the processes. Default: [`Tls::new`].
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        Arc::make_mut(&mut self.0).tls = tls;
        self
    }

    /// Reports processes that fail on standard error, except for `main`: the host that starts
    /// `main` reports its failure.
    ///
    /// The lines are in order with what the processes print and log. The scheduler's own
    /// [reports](procession::report) are not, and would repeat each line:
    /// [`Builder::on_exit`](procession::Builder::on_exit) turns them off.
    #[must_use]
    pub fn report_failures(mut self) -> Self {
        Arc::make_mut(&mut self.0).reports = true;
        self
    }

    /// Lets processes read the standard input of the host. By default, `io.read` raises an error.
    ///
    /// All processes read from the same input: each line is read once.
    #[must_use]
    pub fn standard_input(mut self) -> Self {
        Arc::make_mut(&mut self.0).input = true;
        self
    }

    /// Sets the output to which processes print, and the one to which they log and failures are
    /// reported.
    ///
    /// By default, these are the standard streams ([`Output::standard`]). A process that has
    /// printed then ends only once everything printed is written, so that nothing is lost if the
    /// host exits after the process.
    ///
    /// With this setting, a process does not wait for its output when it ends. Call
    /// [`Output::flush`] before the host exits.
    #[must_use]
    pub fn output(mut self, out: Output, err: Output) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        (inner.out, inner.err, inner.settles) = (out, err, false);
        self
    }

    /// Lets processes call `command.NAME(value)`.
    ///
    /// The handler of `id` receives a [`Value`] and completes with one, immediately or later, from
    /// any thread. If it drops the completion, or completes with an error, the call returns `nil`
    /// and the cause.
    ///
    /// ```
    /// use procession::{Scheduler, SpawnOptions};
    /// use procession::command::{CommandId, Completion};
    /// use procession_lua::{Program, Value};
    ///
    /// const UPPER: CommandId = CommandId::FIRST_FREE;
    ///
    /// let upper = |input: procession::command::Value, completion: Completion| {
    ///     // Only a string is answered. For any other value, the completion is dropped.
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
    /// Returns an [`Error`] if [`spawn`](Self::spawn) does, and also if the options bound the
    /// mailbox.
    #[track_caller]
    pub fn spawn_with(
        &self,
        options: SpawnOptions,
        function: &str,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Result<Child<Message, Value>, Error> {
        self.spawn_bounded(self.0.permissions.clone().into(), options, function, arguments)
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
            program: self.0.name.clone(),
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
            options.label(label(function)).spawn_machine(guest, function, Box::new(arguments));
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
        let failed = |error| load_error(&self.0.name, &error);
        let addition =
            compile("=procession", include_bytes!("lua/repl.lua"), true).map_err(failed)?;
        let mut program = self.clone().command("repl read", read);
        Arc::make_mut(&mut program.0).addition = Some(addition);
        program.spawn_with(options, "procession repl", [])
    }

    /// Returns `true` if a process of this program finds a global function with this name.
    ///
    /// # Errors
    /// Returns an [`Error`] if the program fails before one of its functions is called.
    pub fn has_function(&self, name: &str) -> Result<bool, Error> {
        let budget = Arc::new(Budget::new(self.0.instructions));
        let opened = library::open(self, &self.0.permissions.clone().into(), usize::MAX, &budget);
        let found = opened.and_then(|lua| lua.globals().raw_get::<mlua::Value>(name));
        let is_function = found.map(|value| value.is_function());
        is_function.map_err(|error| Error::Start {
            program: self.0.name.clone(),
            function: name.to_owned(),
            cause: cleaned(&error.to_string()),
        })
    }

    /// Makes the processes of this program part of a deployment that begins with it.
    pub(crate) fn deployed(mut self, link: Link) -> Self {
        Arc::make_mut(&mut self.0).deployment = Some(link);
        self
    }

    /// Makes this program a version of a deployment, which has the version `before`.
    pub(crate) fn deployed_after(self, link: Link, before: &Self) -> Self {
        let mut program = self.deployed(link);
        let inner = Arc::make_mut(&mut program.0);
        (inner.id, inner.later) = (before.0.id, before.0.later.clone());
        program
    }

    /// Returns the program that new processes of this program run.
    pub(crate) fn current(&self) -> Self {
        let link = self.0.deployment.as_ref();
        link.and_then(Link::current).unwrap_or_else(|| self.clone())
    }

    /// Makes the processes of this program part of a run that can be repeated.
    pub(crate) fn repeatable(mut self, run: RepeatableRun) -> Self {
        Arc::make_mut(&mut self.0).repeatable = Some(Arc::new(run));
        self
    }

    /// # Errors
    /// If the host keeps the name for itself, returns the refusal.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), String> {
        match self.0.reserved.iter().any(|reserved| reserved == name) {
            true => Err(format!("the name `{}` belongs to the host", name.escape_debug())),
            false => Ok(()),
        }
    }

    /// Returns the owner of a process of this program with these bounds.
    pub(crate) fn owner(&self, bounds: &Bounds) -> Owner {
        Owner { program: self.0.id, limits: bounds.limits.clone() }
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
