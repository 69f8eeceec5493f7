//! The Lua state of a guest, and the functions that never wait.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table};
use procession::process::RegisterError;
use procession::{Exit, Pid, SpawnOptions};

use crate::account::Account;
use crate::arguments::{self, Arguments};
use crate::budget::Budget;
use crate::ends;
use crate::entry::Entry;
use crate::failure::NOWHERE;
use crate::groups;
use crate::host::Host;
use crate::information;
use crate::interrupt;
use crate::json;
use crate::lazy::{self, Lazy};
use crate::message::{Content, call_proof, check_link, send, send_exit};
use crate::messages;
use crate::output::Output;
use crate::pattern::{self, Capture, Found};
use crate::permissions::Bounds;
use crate::program::Program;
use crate::value::{self, Socket, Value};
use crate::watch::Watch;

/// The bytes by which a state that is being opened may exceed the limits of the processes around.
/// If it does, the process is refused with the cause.
const START_BYTES: usize = 256 * 1024;

/// Opens a new state, and runs the program in it, so that its functions are defined. The limits of
/// the processes around leave `most` bytes for it.
pub(crate) fn open(
    host: &'static dyn Host,
    program: &Program,
    bounds: &Bounds,
    most: usize,
    budget: &Arc<Budget>,
) -> mlua::Result<Lua> {
    let inner = program.inner();
    // Other libraries are opened when they are first used.
    let libraries = StdLib::COROUTINE | StdLib::STRING;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    // All of this stays until the end, or is collected below.
    lua.gc_stop();
    let lazy = Arc::new(Lazy::default());
    let native = native(&lua, host, program, bounds, budget, &lazy)?;
    let prelude = lua.load(&*inner.prelude).set_mode(ChunkMode::Binary).into_function()?;
    let own: Table = prelude.call(native)?;
    lua.set_named_registry_value(lazy::OWN, &own)?;
    lazy.begin(&lua, &own)?;
    interrupt::prepare(&lua, Arc::clone(budget) as _)?;
    // The prelude has taken what it needs from them. Tracebacks have the names of functions from
    // the rest of this table.
    let loaded: Table = lua.named_registry_value("_LOADED")?;
    loaded.raw_set("coroutine", mlua::Value::Nil)?;
    loaded.raw_set("string", mlua::Value::Nil)?;
    if let Some(run) = &inner.repeatable {
        run.prepare(&lua, &own)?;
    }
    let memory_bytes = most.saturating_add(START_BYTES);
    budget.limit_memory(&lua, memory_bytes.min(inner.memory_bytes))?;
    // The hook starts the collector if the program computes for long here.
    budget.set_hook(&lua);
    lua.load(&*inner.code).set_mode(ChunkMode::Binary).exec()?;
    if let Some(addition) = &inner.addition {
        lua.load(&**addition).set_mode(ChunkMode::Binary).exec()?;
    }
    lua.gc_restart();
    // Everything used only to define the functions is garbage. Many processes would hold it for a
    // long time, because they do little. mlua collects the garbage of a state when the first of its
    // handles is dropped. So that is done now, and not when the process ends, because the end frees
    // all memory anyway.
    let handle = lua.clone();
    drop(lua);
    Ok(handle)
}

type Answer = Result<mlua::Value, String>;

fn give(lua: &Lua, value: impl Into<Value>) -> Answer {
    value::give(lua, &value.into()).map_err(|error| error.to_string())
}

/// The work of a spawn, in instructions.
const SPAWN_WORK: u64 = 1000;

/// The steps of a search for a pattern that count as one instruction.
const PATTERN_STEPS: u64 = 10;

/// Returns the result of a send to Lua. A refusal is a text.
fn give_sent(lua: &Lua, sent: Result<bool, &'static str>) -> Answer {
    match sent {
        Ok(sent) => give(lua, sent),
        Err(cause) => give(lua, cause),
    }
}

/// Creates the function through which Lua calls everything that never waits. It is a single
/// function, because each state has a copy. Its first argument is the name of the operation. Its
/// first result is `true` if the operation succeeded; otherwise the second is a string, which the
/// prelude raises as an error.
fn native(
    lua: &Lua,
    host: &'static dyn Host,
    program: &Program,
    bounds: &Bounds,
    budget: &Arc<Budget>,
    lazy: &Arc<Lazy>,
) -> mlua::Result<Function> {
    let lazy = Arc::clone(lazy);
    let own =
        Own { host, program: program.clone(), bounds: bounds.clone(), budget: Arc::clone(budget) };
    lua.create_function(move |lua, mut arguments: MultiValue| {
        let Some(mlua::Value::String(name)) = arguments.pop_front() else {
            return Err(mlua::Error::runtime("native: the first argument must be a name"));
        };
        let arguments = Arguments(arguments, own.budget.allowance(lua));
        let served = match &*name.as_bytes() {
            b"lazy" => access(lua, &arguments, &own, &lazy),
            b"part" => add_table(lua, &arguments, &lazy),
            b"library" => library(lua, &arguments, &lazy),
            name => serve(lua, name, &arguments, &own).map(|value| match value {
                // The cause why a message was refused.
                mlua::Value::String(_) if name == b"reply" => {
                    MultiValue::from_iter([mlua::Value::Boolean(false), value])
                }
                value => MultiValue::from_iter([value]),
            }),
        };
        let result = match served {
            Ok(values) => (true, values),
            Err(cause) => {
                let cause = mlua::Value::String(lua.create_string(cause)?);
                (false, MultiValue::from_iter([cause]))
            }
        };
        own.budget.note_work(lua);
        Ok(result)
    })
}

/// Serves an access to a table of the library.
fn access(lua: &Lua, arguments: &Arguments, own: &Own, lazy: &Lazy) -> Result<MultiValue, String> {
    let Some(mlua::Value::Table(table)) = arguments.0.front() else {
        return Err(arguments.wrong(0, "a table"));
    };
    let rest: Vec<mlua::Value> = arguments.0.iter().skip(1).cloned().collect();
    lazy.access(lua, &own.program.inner().parts, table, &rest).map_err(|error| error.to_string())
}

/// Adds a table to the library, and returns it.
fn add_table(lua: &Lua, arguments: &Arguments, lazy: &Lazy) -> Result<MultiValue, String> {
    let Some(mlua::Value::Table(table)) = arguments.0.front() else {
        return Err(arguments.wrong(0, "a table"));
    };
    match lazy.make_lazy(lua, table, &arguments.text(1)?) {
        Ok(true) => Ok(MultiValue::from_iter([mlua::Value::Table(table.clone())])),
        Ok(false) => Err("the library has no such part".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a table of the library.
fn library(lua: &Lua, arguments: &Arguments, lazy: &Lazy) -> Result<MultiValue, String> {
    let library = lazy.library(lua, &arguments.text(0)?).map_err(|error| error.to_string())?;
    Ok(MultiValue::from_iter([mlua::Value::Table(library)]))
}

/// Returns the numbers of the commands by their names.
fn commands(lua: &Lua, program: &Program) -> Answer {
    let names = program.inner().commands.iter().map(|(name, _)| name.as_str());
    let table = lua.create_table_from(names.zip(0_i64..));
    table.map(mlua::Value::Table).map_err(|error| error.to_string())
}

/// The process of a state, as the functions that never wait see it.
struct Own {
    host: &'static dyn Host,
    program: Program,
    bounds: Bounds,
    budget: Arc<Budget>,
}

impl Own {
    /// Returns the milliseconds since 1970. In a run that can be repeated, the run began at that
    /// time.
    #[expect(clippy::disallowed_methods, reason = "a run that can be repeated never reads it")]
    fn wall_clock(&self) -> f64 {
        let since = match &self.program.inner().repeatable {
            Some(run) => run.age(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        since.as_secs_f64() * 1000.0
    }
}

fn serve(lua: &Lua, name: &[u8], arguments: &Arguments, own: &Own) -> Result<mlua::Value, String> {
    let Own { program, bounds, budget, .. } = own;
    let nothing = Ok(mlua::Value::Nil);
    // The program is loaded in its spawner's step: what names the current process would name the
    // spawner. A process spawned here would load the program, and spawn the next one.
    let needs_process = matches!(
        name,
        b"self"
            | b"spawn"
            | b"spawn linked"
            | b"spawn scoped"
            | b"register"
            | b"exit"
            | b"info"
            | b"join"
            | b"leave"
            | b"members"
            | b"node.send"
            | b"node.monitor"
            | b"node.subscribe"
    );
    if needs_process && !budget.has_started() {
        return Err("the process has not started yet".to_owned());
    }
    match name {
        b"spend" => spend(lua, arguments, budget),
        b"sender" => function(messages::sender(lua, program, budget)),
        b"receiver" => function(messages::receiver(lua, budget)),
        b"reply" => reply(lua, arguments, program),
        b"self" => give(lua, arguments::own_pid()?),
        b"spawn" | b"spawn linked" | b"spawn scoped" => {
            let pid = spawn(name, arguments, own)?;
            // The program was loaded for the new process in the step of this one.
            budget.spend(lua, SPAWN_WORK, true)?;
            give(lua, pid)
        }
        b"register" => {
            let name = arguments.short(0)?;
            program.check_name(&name)?;
            procession::process::register(name, arguments::own_pid()?)
                .map_err(|error: RegisterError| error.to_string())?;
            give(lua, true)
        }
        b"whereis" => {
            procession::process::whereis(&arguments.text(0)?).map_or(nothing, |pid| give(lua, pid))
        }
        b"exit" => {
            let to = arguments.target(0)?;
            ends::check(program, bounds, to, "end")?;
            let exit = match arguments.0.get(1) {
                None | Some(mlua::Value::Nil) => Exit::Shutdown,
                Some(_) => match &*arguments.short(1)? {
                    "normal" => Exit::Normal,
                    "shutdown" => Exit::Shutdown,
                    "kill" => Exit::Killed,
                    reason => Exit::failed(reason),
                },
            };
            give(lua, send_exit(to, exit)?)
        }
        b"cancel" => {
            let to = arguments.target(0)?;
            ends::check(program, bounds, to, "cancel")?;
            give(lua, procession::process::cancel(to))
        }
        b"now" => give(lua, budget.age().as_secs_f64() * 1000.0),
        b"getenv" => {
            let name = arguments.bytes(0)?;
            bounds
                .permissions
                .check_env(&name)
                .map_err(|error| format!("cannot read a variable: {error}"))?;
            let value = std::env::var_os(OsStr::from_bytes(&name));
            value.map_or(nothing, |value| give(lua, Value::string(value.as_bytes())))
        }
        b"wall clock" => give(lua, own.wall_clock()),
        b"info" => give(lua, information::of(arguments.pid_or_own(0)?)),
        b"join" | b"leave" => {
            let (group, pid) = (arguments.bounded(0, groups::NAME_MAX)?, arguments.pid_or_own(1)?);
            ends::check(program, bounds, pid, "change the groups of")?;
            let act = if name == b"join" { groups::join } else { groups::leave };
            give(lua, act(&group, pid)?)
        }
        b"members" => give(lua, groups::members(&arguments.bounded(0, groups::NAME_MAX)?)?),
        b"encode" => give(lua, &*json::encode(&arguments.value(0)?, arguments.1, Watch::new())?),
        b"decode" => {
            let text = arguments.borrowed(0)?.as_bytes();
            give(lua, json::decode(&text, arguments.1, Watch::new())?)
        }
        b"search" => search(lua, arguments, budget),
        b"names" => names(arguments).map_err(|error| error.to_string()),
        b"print" => print(&program.inner().out, arguments, budget),
        b"log" => print(&program.inner().err, arguments, budget),
        b"close" => {
            if let Some(Socket::Connection(connection)) = arguments.forget_socket()? {
                connection.close();
            }
            nothing
        }
        b"forget" => {
            arguments.forget_socket()?;
            nothing
        }
        b"address" => give(lua, address(arguments)?),
        b"backlog" => arguments.listener(0)?.backlog().map_or(nothing, |count| give(lua, count)),
        b"commands" => commands(lua, program),
        b"doomed" => {
            let doomed = budget.end_thread(lua);
            let text = arguments.0.front().and_then(|error| {
                interrupt::text_of(lua, error).or_else(|| without_nowhere(lua, error))
            });
            Ok(text.filter(|_| !doomed).unwrap_or(mlua::Value::Boolean(doomed)))
        }
        b"open" => lazy::open(lua, &arguments.text(0)?)
            .map(mlua::Value::Table)
            .map_err(|error| error.to_string()),
        b"module" => module(lua, arguments, program),
        _ => match name.strip_prefix(b"node.") {
            Some(operation) => {
                give(lua, program.inner().node.serve(operation, arguments, &bounds.permissions)?)
            }
            None => Err("the runtime has no such function".to_owned()),
        },
    }
}

fn function(made: mlua::Result<Function>) -> Answer {
    made.map(mlua::Value::Function).map_err(|error| error.to_string())
}

/// Returns the address of a listener or a UDP socket.
fn address(arguments: &Arguments) -> Result<Value, String> {
    let address = match arguments.socket(0)? {
        Socket::Listener(listener) => listener.address(),
        Socket::Datagrams(socket) => socket.address(),
        Socket::Connection(_) => return Err("argument 1 must be a listener".to_owned()),
    };
    address.map(|address| Value::string(address.to_string())).map_err(|error| error.to_string())
}

/// Answers a call that was received.
fn reply(lua: &Lua, arguments: &Arguments, program: &Program) -> Answer {
    let call = arguments.value(0)?;
    if let Some(replied) = program.inner().node.reply(&call, &arguments.value(1)?) {
        return give(lua, replied?);
    }
    let (Some(Value::Pid(from)), Some(Value::Integer(tag))) = (call.get("from"), call.get("tag"))
    else {
        return Err("argument 1 must be a call that was received".to_owned());
    };
    let (from, tag) = (*from, tag.cast_unsigned());
    // Guests choose tags that nobody can guess, and others do not.
    if Account::of(from).is_none() && call.get("proof") != Some(&call_proof(from, tag)) {
        return give(lua, false);
    }
    let content = Content::Answer { tag, value: arguments.value(1)? };
    give_sent(lua, send(from, content))
}

/// Counts work in C. Returns `true` if the process should be suspended now.
fn spend(lua: &Lua, arguments: &Arguments, budget: &Budget) -> Answer {
    let work = u64::try_from(arguments.integer(0)?).unwrap_or(0);
    let can_yield = arguments.0.get(1) == Some(&mlua::Value::Boolean(true));
    let due = budget.spend(lua, work, can_yield)?;
    give(lua, due)
}

/// Returns an error of Lua in a function of the library without the place, which is none.
fn without_nowhere(lua: &Lua, error: &mlua::Value) -> Option<mlua::Value> {
    let text = error.as_string()?.as_bytes();
    let text = text.strip_prefix(NOWHERE.as_bytes())?;
    lua.create_string(text).ok().map(mlua::Value::String)
}

/// Returns the number of bytes that tables have for their names in texts and errors.
fn names(arguments: &Arguments) -> mlua::Result<mlua::Value> {
    let mut bytes = 0;
    for value in &arguments.0 {
        if let mlua::Value::Table(table) = value
            && let Some(metatable) = table.metatable()
            && let mlua::Value::String(name) = metatable.raw_get("__name")?
        {
            bytes += name.as_bytes().len();
        }
    }
    Ok(mlua::Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// Searches for a match of a pattern. Returns a table with the first and the last byte, and the
/// captures. Returns an offset if the search should go on there after a pause.
fn search(lua: &Lua, arguments: &Arguments, budget: &Budget) -> Answer {
    let (text, wanted) = (arguments.borrowed(1)?, arguments.borrowed(2)?);
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    let from = usize::try_from(arguments.integer(3)?).unwrap_or(0).min(text.len());
    let last = usize::try_from(arguments.integer(4)?).ok();
    let mut steps = 0;
    let found = match &*arguments.borrowed(0)?.as_bytes() {
        b"plain" => Ok(pattern::search_plain(&text, &wanted, from, &mut steps)),
        kind => pattern::search(&text, &wanted, from, last, kind == b"anchored", &mut steps),
    };
    // The process pauses afterwards, even if the search has failed.
    budget.spend(lua, steps / PATTERN_STEPS, true)?;
    let offset = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
    let (start, end, captures) = match found? {
        Found::Nothing => return Ok(mlua::Value::Nil),
        Found::Paused(at) => return Ok(mlua::Value::Integer(offset(at))),
        Found::Match(start, end, captures) => (start, end, captures),
    };
    let table = lua.create_table_with_capacity(captures.len() + 2, 0);
    let filled = table.and_then(|table| {
        table.raw_push(offset(start) + 1)?;
        table.raw_push(offset(end))?;
        for capture in captures {
            match capture {
                Capture::Text(start, end) => {
                    table.raw_push(lua.create_string(&text[start..end])?)?
                }
                Capture::Position(at) => table.raw_push(offset(at) + 1)?,
                Capture::Open => table.raw_push(false)?,
            }
        }
        Ok(mlua::Value::Table(table))
    });
    filled.map_err(|error| error.to_string())
}

/// Spawns a process of the program. It may be linked to this one, or cancelled at its end.
fn spawn(operation: &[u8], arguments: &Arguments, own: &Own) -> Result<Pid, String> {
    let options = SpawnOptions::new();
    let options = match operation {
        b"spawn linked" => {
            check_link(arguments::own_pid()?, None)?;
            options.link()
        }
        b"spawn scoped" => options.scoped(),
        _ => options,
    };
    let entry = Entry::new(&arguments.value(0)?, &own.bounds)?;
    let options = options.priority(entry.priority);
    let arguments = arguments.rest(1)?;
    let given_up = match (operation, arguments.first()) {
        // Only `net.serve` does so, and it forgets the connection then. Otherwise it would be
        // charged for the sessions of all its connections. A spawner that keeps the connection is
        // still charged, because it could shed the charge to a process that ends.
        (b"spawn scoped", Some(Value::Socket(Socket::Connection(connection)))) => {
            Some(Arc::clone(connection))
        }
        _ => None,
    };
    let pid = own.host.spawn(&own.program.current(), &entry, options, arguments)?;
    if let (Some(connection), Some(account)) = (given_up, Account::of(pid)) {
        connection.charge_to(&account);
    }
    Ok(pid)
}

/// Returns the function that runs a module.
fn module(lua: &Lua, arguments: &Arguments, program: &Program) -> Answer {
    let name = arguments.text(0)?;
    let Some(code) = program.inner().modules.codes.get(&name) else {
        return Err(format!("the program has no module '{}'", name.escape_debug()));
    };
    function(lua.load(&**code).set_mode(ChunkMode::Binary).into_function())
}

/// Appends a line to an output. If the output has no room and the process can be suspended, returns
/// `false`.
fn print(output: &Output, arguments: &Arguments, budget: &Budget) -> Answer {
    let Some(mlua::Value::String(line)) = arguments.0.front() else {
        return Err(arguments.wrong(0, "a string"));
    };
    let can_wait =
        arguments.0.get(1).is_some_and(|can_wait| *can_wait == mlua::Value::Boolean(true));
    budget.note_printed();
    match can_wait {
        true if output.try_write(&line.as_bytes()) => Ok(mlua::Value::Nil),
        true => Ok(mlua::Value::Boolean(false)),
        false if output.try_write_reserve(&line.as_bytes()) => Ok(mlua::Value::Nil),
        false => {
            Err("the reader of the output is too slow, and the process cannot wait here".to_owned())
        }
    }
}
