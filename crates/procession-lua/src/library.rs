//! The Lua state of a guest: its limits, and the functions that never wait.

use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, VmState};
use procession::relations::RegisterError;
use procession::time::Instant;
use procession::{Exit, Pid, SpawnOptions};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::guest::Message;
use crate::json;
use crate::output::Output;
use crate::program::Program;
use crate::value::{self, LuaSocket, PIDS, SOCKET_METHODS, Socket, Value};

/// The number of times that a process may use up its instruction budget within one step, before it
/// ends. It can do so only where Lua cannot be suspended: in a comparison of `table.sort`, in a
/// function called by `string.gsub`, and in the program before one of its functions is called. With
/// the default budget, all of them together take about 100 ms.
const OVERRUNS_MAX: u32 = 1000;
const OVERRUN: &str = "the process computed for too long where it cannot be suspended";

/// The record of a process: how far it has overrun its step, if it must end for that, and if it has
/// printed.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    overruns: AtomicU32,
    doomed: AtomicBool,
    printed: AtomicBool,
    /// `true` once the function of the process has been found, and may run.
    loaded: AtomicBool,
}

impl Budget {
    pub(crate) fn renew(&self) {
        // Relaxed, here and below: the process runs on one thread at a time, and the scheduler
        // hands it over.
        self.overruns.store(0, Relaxed);
    }

    /// Counts that the step is over. Returns `true` if the process must end, since it could not be
    /// suspended for too long.
    fn overrun(&self) -> bool {
        // Relaxed, as in `renew`.
        if self.overruns.fetch_add(1, Relaxed) >= OVERRUNS_MAX {
            self.doomed.store(true, Relaxed);
        }
        self.doomed.load(Relaxed)
    }

    /// Allows what only a process may do, such as a spawn. Before that, code of the program runs on
    /// the stack of its spawner.
    pub(crate) fn set_loaded(&self) {
        // Relaxed, as in `renew`.
        self.loaded.store(true, Relaxed);
    }

    pub(crate) fn has_printed(&self) -> bool {
        self.printed.load(Relaxed)
    }
}

/// Opens a new state, and runs the program in it, so that its functions are defined.
pub(crate) fn open(program: &Program, budget: &Arc<Budget>) -> mlua::Result<Lua> {
    let inner = program.inner();
    let libraries =
        StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    let native = native(&lua, program, budget)?;
    let commands = lua.create_table()?;
    for (index, (name, _)) in (0_i64..).zip(&inner.commands) {
        commands.raw_set(name.as_str(), index)?;
    }
    let pids = lua.create_table()?;
    lua.set_named_registry_value(PIDS, &pids)?;
    let prelude = lua.load(&*inner.prelude).set_mode(ChunkMode::Binary).into_function()?;
    let methods: Table = prelude.call((native, commands, pids))?;
    lua.set_named_registry_value(SOCKET_METHODS, methods)?;
    if let Some(run) = &inner.repeatable {
        run.prepare(&lua)?;
    }
    lua.set_memory_limit(inner.memory_bytes)?;
    let spent = Arc::clone(budget);
    lua.set_global_hook(
        HookTriggers::new().every_nth_instruction(inner.instructions),
        move |_, _| {
            if !spent.overrun() {
                return Ok(VmState::Yield);
            }
            Err(mlua::Error::runtime(OVERRUN))
        },
    )?;
    lua.load(&*inner.code).set_mode(ChunkMode::Binary).exec()?;
    if let Some(addition) = &inner.addition {
        lua.load(&**addition).set_mode(ChunkMode::Binary).exec()?;
    }
    // Everything used only to define the functions is garbage. Many processes would hold it for a
    // long time, since they do little.
    lua.gc_collect()?;
    Ok(lua)
}

type Answer = Result<mlua::Value, String>;

/// The arguments of a call from Lua.
pub(crate) struct Arguments {
    pub(crate) values: MultiValue,
    /// The number of bytes that a copy of an argument may take.
    pub(crate) bytes_max: usize,
}

impl Arguments {
    pub(crate) fn value(&self, index: usize) -> Result<Value, String> {
        let Some(value) = self.values.get(index) else { return Ok(Value::Nil) };
        value::take(value, self.bytes_max)
            .map_err(|error| format!("argument {}: {error}", index + 1))
    }

    pub(crate) fn rest(&self, from: usize) -> Result<Vec<Value>, String> {
        (from..self.values.len()).map(|index| self.value(index)).collect()
    }

    fn wrong(&self, index: usize, wanted: &str) -> String {
        let given = self.values.get(index).map_or("nothing", |value| value.type_name());
        format!("argument {} must be {wanted}, not {given}", index + 1)
    }

    pub(crate) fn bytes(&self, index: usize) -> Result<Arc<[u8]>, String> {
        match self.value(index)? {
            Value::String(bytes) => Ok(bytes),
            _ => Err(self.wrong(index, "a string")),
        }
    }

    pub(crate) fn text(&self, index: usize) -> Result<String, String> {
        String::from_utf8(self.bytes(index)?.to_vec())
            .map_err(|_| self.wrong(index, "a string in UTF-8"))
    }

    pub(crate) fn integer(&self, index: usize) -> Result<i64, String> {
        match self.values.get(index) {
            Some(mlua::Value::Integer(integer)) => Ok(*integer),
            _ => Err(self.wrong(index, "an integer")),
        }
    }

    /// Returns the PID in an argument that is a PID or the name of a process.
    pub(crate) fn target(&self, index: usize) -> Result<Pid, String> {
        match self.value(index)? {
            Value::Pid(pid) => Ok(pid),
            Value::String(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                procession::relations::whereis(&name)
                    .ok_or_else(|| format!("no process has the name {name:?}"))
            }
            _ => Err(self.wrong(index, "a PID or a name")),
        }
    }

    /// Takes the socket in the first argument out of the Lua state. Returns `None` if it was taken
    /// out before.
    fn forget_socket(&self) -> Result<Option<Socket>, String> {
        let data = self.values.front().and_then(mlua::Value::as_userdata);
        let socket = data.and_then(|data| Some(data.borrow_mut::<LuaSocket>().ok()?.0.take()));
        socket.ok_or_else(|| self.wrong(0, "a socket"))
    }

    pub(crate) fn socket(&self, index: usize) -> Result<Socket, String> {
        match self.value(index)? {
            Value::Socket(socket) => Ok(socket),
            _ => Err(self.wrong(index, "a socket")),
        }
    }
}

fn give(lua: &Lua, value: impl Into<Value>) -> Answer {
    value::give(lua, &value.into()).map_err(|error| error.to_string())
}

fn send(to: Pid, message: Message) -> bool {
    // A refused message is dropped: as in Erlang, a send to a process that has ended does nothing.
    // Lua gets the result.
    procession::mailbox::send(to, message).is_ok()
}

/// Creates the function through which Lua calls everything that never waits. It is a single
/// function, because each state has a copy. Its first argument is the name of the operation. Its
/// first result is `true` if the operation succeeded; otherwise the second is a string, which the
/// prelude raises as an error.
fn native(lua: &Lua, program: &Program, budget: &Arc<Budget>) -> mlua::Result<Function> {
    let (program, spent, start) = (program.clone(), Arc::clone(budget), Instant::now());
    lua.create_function(move |lua, mut arguments: MultiValue| {
        let Some(mlua::Value::String(name)) = arguments.pop_front() else {
            return Err(mlua::Error::runtime("native: the first argument must be a name"));
        };
        let bytes_max = program.inner().memory_bytes;
        let arguments = Arguments { values: arguments, bytes_max };
        Ok(match serve(lua, &name.as_bytes(), &arguments, &program, &spent, start) {
            Ok(value) => (true, value),
            Err(cause) => (false, mlua::Value::String(lua.create_string(cause)?)),
        })
    })
}

fn serve(
    lua: &Lua,
    name: &[u8],
    arguments: &Arguments,
    program: &Program,
    budget: &Budget,
    start: Instant,
) -> Result<mlua::Value, String> {
    let nothing = Ok(mlua::Value::Nil);
    // The program is loaded in its spawner's step: what names the current process would name the
    // spawner. A process spawned here would load the program, and spawn the next one.
    let needs_process = matches!(name, b"self" | b"spawn" | b"register" | b"exit");
    if needs_process && !budget.loaded.load(Relaxed) {
        return Err("the process has not started yet".to_owned());
    }
    match name {
        b"send" => give(lua, send(arguments.target(0)?, Message::Plain(arguments.value(1)?))),
        b"reply" => give(lua, reply(arguments)?),
        b"self" => give(lua, procession::current_pid().ok_or("the process has not started yet")?),
        b"spawn" => give(lua, spawn(arguments, program)?),
        b"register" => {
            let pid = procession::current_pid().ok_or("the process has not started yet")?;
            procession::relations::register(arguments.text(0)?, pid)
                .map_err(|error: RegisterError| error.to_string())?;
            give(lua, true)
        }
        b"whereis" => procession::relations::whereis(&arguments.text(0)?)
            .map_or(nothing, |pid| give(lua, pid)),
        b"exit" => {
            let exit = match &*arguments.text(1)? {
                "normal" => Exit::Normal,
                "shutdown" => Exit::Shutdown,
                "kill" => Exit::Killed,
                reason => Exit::failed(reason),
            };
            give(lua, procession::relations::send_exit(arguments.target(0)?, exit))
        }
        b"cancel" => give(lua, procession::relations::cancel(arguments.target(0)?)),
        b"now" => give(lua, Instant::now().saturating_duration_since(start).as_secs_f64() * 1000.0),
        b"encode" => give(lua, &*json::encode(&arguments.value(0)?)?),
        b"decode" => give(lua, json::decode(&arguments.bytes(0)?)?),
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
        // Relaxed, as in `renew`.
        b"overrun" if budget.overrun() => Err(OVERRUN.to_owned()),
        b"overrun" => nothing,
        b"doomed" => give(lua, budget.doomed.load(Relaxed)),
        b"part" => part(lua, arguments, program),
        _ => Err("the runtime has no such function".to_owned()),
    }
}

/// Returns the address of a listener.
fn address(arguments: &Arguments) -> Result<Value, String> {
    match arguments.socket(0)? {
        Socket::Listener(listener) => listener.address().map_err(|error| error.to_string()),
        Socket::Connection(_) => Err("argument 1 must be a listener".to_owned()),
    }
}

/// Answers a call that was received.
fn reply(arguments: &Arguments) -> Result<bool, String> {
    let call = arguments.value(0)?;
    let (Some(Value::Pid(from)), Some(Value::Integer(tag))) = (call.get("from"), call.get("tag"))
    else {
        return Err("argument 1 must be a call that was received".to_owned());
    };
    let answer = Message::Answer { tag: tag.cast_unsigned(), value: arguments.value(1)? };
    Ok(send(*from, answer))
}

/// Spawns a process of the program. It is linked if the first argument is 1, and cancelled at the
/// end of this process if that is 2.
fn spawn(arguments: &Arguments, program: &Program) -> Result<Pid, String> {
    let options = SpawnOptions::new();
    let options = match arguments.integer(0)? {
        1 => options.link(),
        2 => options.scoped(),
        _ => options,
    };
    let child = program.current().spawn_with(options, &arguments.text(1)?, arguments.rest(2)?);
    Ok(child.map_err(|error| error.to_string())?.detach().pid())
}

/// Returns the function that defines a part of the library.
fn part(lua: &Lua, arguments: &Arguments, program: &Program) -> Answer {
    let name = arguments.text(0)?;
    let known = program.inner().parts.iter().find(|(part, _)| *part == name);
    let (_, code) = known.ok_or("the library has no such part")?;
    let part = lua.load(&**code).set_mode(ChunkMode::Binary).into_function();
    part.map(mlua::Value::Function).map_err(|error| error.to_string())
}

/// Appends a line to an output. If the output has no room and the process can be suspended, returns
/// `false`.
fn print(output: &Output, arguments: &Arguments, budget: &Budget) -> Answer {
    let Some(mlua::Value::String(line)) = arguments.values.front() else {
        return Err(arguments.wrong(0, "a string"));
    };
    let can_wait =
        arguments.values.get(1).is_some_and(|can_wait| *can_wait == mlua::Value::Boolean(true));
    // Relaxed, as in `renew`.
    budget.printed.store(true, Relaxed);
    match can_wait {
        true if output.try_write(&line.as_bytes()) => Ok(mlua::Value::Nil),
        true => Ok(mlua::Value::Boolean(false)),
        false if output.try_write_reserve(&line.as_bytes()) => Ok(mlua::Value::Nil),
        false => {
            Err("the reader of the output is too slow, and the process cannot wait here".to_owned())
        }
    }
}
