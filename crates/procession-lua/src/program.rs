//! Programs, of which guests are the processes: what each of their processes has in common.

mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use procession::machine::CommandId;

pub use self::versions::Upgrade;
pub(crate) use self::versions::{Link, Member, Outcome, Shared, State};
use crate::account;
use crate::failure::Error;
use crate::limits::{Limits, Resource};
use crate::modules::Modules;
use crate::output::Output;
use crate::owner::{Owner, ProgramId};
use crate::permissions::{Bounds, Permissions};
use crate::repeatable::RepeatableRun;
use crate::source::{PARTS, Part, compile, load_error, lua_text};
use crate::tls::Tls;
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
    /// Compiled, because each process loads it. The compiler also runs where it cannot be
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

/// The node of a program, if its host has given it one.
#[cfg(feature = "cluster")]
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnNode(pub(crate) Option<procession_cluster::Node>);

/// The node that no program has.
#[cfg(not(feature = "cluster"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnNode(());

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

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
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

    /// Returns the files that the program was read from: the files of its modules, and its own
    /// file.
    pub fn files(&self) -> &[PathBuf] {
        &self.0.modules.files
    }

    /// Sets the number of bytes that each process may allocate in its Lua state. An allocation
    /// beyond that raises an error in Lua.
    #[must_use]
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.with(|inner| inner.memory_bytes = bytes)
    }

    /// Sets the number of messages that may wait for each process. Default: 1 048 576.
    ///
    /// The values of these messages may together have half as many bytes as
    /// [`memory_limit`](Self::memory_limit). If a message of another guest does not fit, it is
    /// refused, and its sender learns that. Messages from Rust are not counted.
    ///
    /// For a process of the host, guests may let 1 048 576 messages wait, and as many of a size as
    /// have 32 MiB together, or twice that with answers to its calls.
    /// [`SpawnOptions::mailbox`](procession::SpawnOptions::mailbox) bounds it further. With
    /// [`WhenFull::Kill`](procession::mailbox::WhenFull::Kill), guests can end the process, because
    /// any guest may fill its mailbox.
    #[must_use]
    pub fn mailbox_limit(self, messages: usize) -> Self {
        self.with(|inner| inner.mailbox_messages = messages)
    }

    /// Sets the number of Lua instructions after which a process yields to others.
    #[must_use]
    pub fn instructions_per_step(self, count: u32) -> Self {
        self.with(|inner| inner.instructions = count.max(100))
    }

    /// Sets the permissions of the processes that are spawned from Rust. The processes that they
    /// spawn have the same permissions, or fewer. Default: [`Permissions::none`].
    #[must_use]
    pub fn permissions(self, permissions: Permissions) -> Self {
        self.with(|inner| inner.permissions = permissions)
    }

    /// Keeps a name for the host: no process of the program may register it. Otherwise a process
    /// could take it before the host does, or while a supervisor of the host restarts its owner.
    ///
    /// A program that replaces this one in a [`Deployment`](crate::Deployment) must keep the name
    /// itself.
    #[must_use]
    pub fn reserve_name(self, name: impl Into<String>) -> Self {
        self.with(|inner| inner.reserved.push(name.into()))
    }

    /// Sets the certificates for the connections of the processes. Default: [`Tls::new`].
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        self.with(|inner| inner.tls = tls)
    }

    /// Reports processes that fail on standard error, except for `main`: the host that starts
    /// `main` reports its failure.
    ///
    /// The lines are in order with what the processes print and log. The scheduler's own
    /// [reports](procession::observe) are not, and would repeat each line:
    /// [`Builder::on_exit`](procession::scheduler::Builder::on_exit) turns them off.
    #[must_use]
    pub fn report_failures(self) -> Self {
        self.with(|inner| inner.reports = true)
    }

    /// Lets processes read the standard input of the host. By default, `io.read` raises an error.
    ///
    /// All processes read from the same input: each line is read once.
    #[must_use]
    pub fn standard_input(self) -> Self {
        self.with(|inner| inner.input = true)
    }

    /// Sets the output to which processes print, and the output for logs and reports of failures.
    ///
    /// By default, these are the standard streams ([`Output::standard`]). A process that has
    /// printed then ends only once everything printed is written, so that nothing is lost if the
    /// host exits after the process.
    ///
    /// With this setting, a process does not wait for its output when it ends. Call
    /// [`Output::flush`] before the host exits.
    #[must_use]
    pub fn output(self, out: Output, err: Output) -> Self {
        self.with(|inner| (inner.out, inner.err, inner.settles) = (out, err, false))
    }

    /// Lets processes call `command.NAME(value)`.
    ///
    /// The handler of `id` receives a [`Value`](crate::Value) and completes with one, immediately
    /// or later, from any thread. If it drops the completion, or completes with an error, the call
    /// returns `nil` and the cause.
    ///
    /// ```
    /// use procession::machine::{CommandId, Completion};
    /// use procession::{Scheduler, SpawnOptions};
    /// use procession_lua::{Program, Value};
    ///
    /// const UPPER: CommandId = CommandId::FIRST_FREE;
    ///
    /// let upper = |input: procession::machine::Value, completion: Completion| {
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
    pub fn command(self, name: impl Into<String>, id: CommandId) -> Self {
        self.with(|inner| inner.commands.push((name.into(), id)))
    }

    /// Makes the processes of this program part of a deployment that begins with it.
    pub(crate) fn deployed(self, link: Link) -> Self {
        self.with(|inner| inner.deployment = Some(link))
    }

    /// Makes this program a version of a deployment, which has the version `before`.
    pub(crate) fn deployed_after(self, link: Link, before: &Self) -> Self {
        let (id, later) = (before.0.id, before.0.later.clone());
        self.deployed(link).with(|inner| (inner.id, inner.later) = (id, later))
    }

    /// Returns the program that new processes of this program run.
    pub(crate) fn current(&self) -> Self {
        let link = self.0.deployment.as_ref();
        link.and_then(Link::current).unwrap_or_else(|| self.clone())
    }

    /// Makes the processes of this program part of a run that can be repeated.
    pub(crate) fn repeatable(self, run: RepeatableRun) -> Self {
        self.with(|inner| inner.repeatable = Some(Arc::new(run)))
    }

    /// # Errors
    /// If the host keeps the name for itself, returns the refusal.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), String> {
        match self.0.reserved.iter().any(|reserved| reserved == name) {
            true => Err(format!("the name `{}` belongs to the host", name.escape_debug())),
            false => Ok(()),
        }
    }

    /// Returns the number of messages, and their bytes, that may wait for a process with these
    /// bounds.
    pub(crate) fn mailbox(&self, bounds: &Bounds) -> (usize, usize) {
        let bytes = self.0.memory_bytes.min(bounds.limits.most(Resource::Memory));
        (self.0.mailbox_messages, bytes / 2)
    }

    /// Returns the owner of a process of this program with these bounds.
    pub(crate) fn owner(&self, bounds: &Bounds) -> Owner {
        Owner { program: self.0.id, limits: bounds.limits.clone() }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}
