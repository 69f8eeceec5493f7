//! The library of a process. Its tables and functions are made when they are first used, because
//! each process has its own.
//!
//! The table of the globals has hardly more than the program itself at first, and the tables of the
//! library are empty. Their metatable calls the native function `lazy`:
//!
//! - The globals are the tables of the library, and the functions in [`FUNCTIONS`].
//! - Many functions only pass their arguments on to an operation of the host. They are made one by
//!   one, from the rows of [`PASSED_ON`].
//! - All others are in parts: files in `lua/`, each for one table.
//! - Some tables belong to Lua's own libraries, which are opened then.

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaString, MultiValue, StdLib, Table};
use procession_sync::Mutex;

use crate::source::Part;

/// The name of the table of the library's own globals in the registry of each state.
pub(crate) const OWN: &str = "procession.own";

/// A function that passes its arguments on: its table, its name, how it returns the result, where
/// the operation is, and the operation.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// How a function returns the result of an operation: `check` raises failures as errors, and `try`
/// returns them.
const CHECK: &str = "check";
const TRY: &str = "try";
/// Where an operation is: among the operations that never wait, or among the operations of a step.
const NATIVE: &str = "native";
const YIELD: &str = "yield";
/// A part returns the function, because it is called more often than others.
const PART: &str = "part";

const PASSED_ON: &[Row] = &[
    ("fs", "append", TRY, YIELD, "fs.append"),
    ("fs", "kind", TRY, YIELD, "fs.kind"),
    ("fs", "list", TRY, YIELD, "fs.list"),
    ("fs", "make_directory", TRY, YIELD, "fs.make_directory"),
    ("fs", "read", TRY, YIELD, "fs.read"),
    ("fs", "remove", TRY, YIELD, "fs.remove"),
    ("fs", "rename", TRY, YIELD, "fs.rename"),
    ("fs", "size", TRY, YIELD, "fs.size"),
    ("fs", "write", TRY, YIELD, "fs.write"),
    ("group", "join", CHECK, NATIVE, "join"),
    ("group", "leave", CHECK, NATIVE, "leave"),
    ("group", "members", CHECK, NATIVE, "members"),
    ("json", "decode", TRY, NATIVE, "decode"),
    ("json", "encode", CHECK, NATIVE, "encode"),
    ("net", "connect", TRY, YIELD, "connect"),
    ("net", "listen", TRY, YIELD, "listen"),
    ("net", "udp", TRY, YIELD, "udp"),
    ("os", "getenv", CHECK, NATIVE, "getenv"),
    ("process", "call", TRY, YIELD, "call"),
    ("process", "cancel", CHECK, NATIVE, "cancel"),
    ("process", "cancel_timer", CHECK, YIELD, "cancel timer"),
    ("process", "cancelled", CHECK, YIELD, "cancelled"),
    ("process", "exit", CHECK, NATIVE, "exit"),
    ("process", "info", CHECK, NATIVE, "info"),
    ("process", "link", CHECK, YIELD, "link"),
    ("process", "monitor", CHECK, YIELD, "monitor"),
    ("process", "receive", CHECK, PART, "receive"),
    ("process", "register", CHECK, NATIVE, "register"),
    ("process", "reply", CHECK, NATIVE, "reply"),
    ("process", "self", CHECK, NATIVE, "self"),
    ("process", "send", CHECK, PART, "send"),
    ("process", "send_after", CHECK, YIELD, "send after"),
    ("process", "spawn", CHECK, NATIVE, "spawn"),
    ("process", "spawn_link", CHECK, NATIVE, "spawn linked"),
    ("process", "trap_exits", CHECK, YIELD, "trap"),
    ("process", "unlink", CHECK, YIELD, "unlink"),
    ("process", "whereis", CHECK, NATIVE, "whereis"),
    ("process", "yield", CHECK, YIELD, "yield"),
    ("socket", "accept", TRY, YIELD, "accept"),
    ("socket", "address", CHECK, NATIVE, "address"),
    ("socket", "close", CHECK, NATIVE, "close"),
    ("socket", "forget", CHECK, NATIVE, "forget"),
    ("socket", "read", TRY, YIELD, "read"),
    ("socket", "send_to", TRY, YIELD, "send to"),
    ("socket", "write", TRY, YIELD, "write"),
    ("supervisor", "count", TRY, YIELD, "supervisor.count"),
    ("supervisor", "delete_child", TRY, YIELD, "supervisor.delete_child"),
    ("supervisor", "restart_child", TRY, YIELD, "supervisor.restart_child"),
    ("supervisor", "start_child", TRY, YIELD, "supervisor.start_child"),
    ("supervisor", "terminate_child", TRY, YIELD, "supervisor.terminate_child"),
    ("supervisor", "which", TRY, YIELD, "supervisor.which"),
    ("time", "now", CHECK, NATIVE, "now"),
    ("time", "since_epoch", CHECK, NATIVE, "wall clock"),
    ("time", "sleep", CHECK, YIELD, "sleep"),
];

/// The tables of the library that are globals, with their parts.
pub(crate) const GLOBALS: &[(&str, &[&str])] = &[
    ("command", &["command"]),
    ("coroutine", &["coroutine"]),
    ("fs", &["fs"]),
    ("group", &["group"]),
    ("http", &["http", "client"]),
    ("io", &["io"]),
    ("json", &[]),
    ("log", &["log"]),
    ("math", &["math"]),
    ("net", &["net"]),
    ("node", &["node"]),
    ("os", &["os"]),
    ("package", &["package"]),
    ("process", &[]),
    ("string", &["string"]),
    ("supervisor", &["supervisor"]),
    ("table", &["table"]),
    ("time", &[]),
    ("utf8", &["utf8"]),
];

/// The functions of the library that are globals. Each is made by a separate part, or by the parts
/// of a table in [`GLOBALS`].
const FUNCTIONS: &[(&str, &str)] = &[
    ("getmetatable", "metatables"),
    ("load", "code"),
    ("next", "raw"),
    ("pcall", "pcall"),
    ("print", "log"),
    ("rawget", "raw"),
    ("rawset", "raw"),
    ("require", "package"),
    ("setmetatable", "metatables"),
    ("xpcall", "code"),
];

// Each global has a bit in an `Entry`.
const _: () = assert!(GLOBALS.len() + FUNCTIONS.len() <= u32::BITS as usize);

/// The other tables: the globals, the globals of the parts, and tables of the library.
const OTHERS: &[(&str, &[&str])] = &[
    (OF_PROGRAM, &[]),
    (OF_PARTS, &["try", "budget"]),
    ("patterns", &["patterns"]),
    ("socket", &["socket"]),
    ("tables", &["tables"]),
];
const OF_PROGRAM: &str = "_G";
const OF_PARTS: &str = "own";

/// The tables of a state with functions that are made when they are first used.
#[derive(Debug, Default)]
pub(crate) struct Lazy(Mutex<Vec<Entry>>);

/// A table. Each process has some of these, so an entry is small.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The address of the table. If the table is collected and another table gets its address, the
    /// new table has no metatable that leads here.
    table: usize,
    /// The index of its row in [`GLOBALS`], or after all rows in [`OTHERS`].
    row: u8,
    /// The number of its parts that were loaded.
    loaded: u8,
    /// The bits of the functions in [`PASSED_ON`] that were made, or that the program replaced. The
    /// first one of the table has bit 0. A function that is missing although its bit is set was
    /// removed by the program. For the table of the globals, the bits of [`GLOBALS`] and then of
    /// [`FUNCTIONS`].
    made: u32,
}

impl Entry {
    fn row(self) -> &'static (&'static str, &'static [&'static str]) {
        let row = usize::from(self.row);
        GLOBALS.get(row).unwrap_or_else(|| &OTHERS[row - GLOBALS.len()])
    }

    /// Returns the functions of the table that pass their arguments on, with their bits.
    fn passed_on(self) -> impl Iterator<Item = (u32, &'static Row)> {
        let name = self.row().0;
        let rows = PASSED_ON.iter().filter(move |row| row.0 == name);
        rows.enumerate().map(|(index, row)| (1 << index, row))
    }

    /// Returns what is made alone: the globals of the program, or functions that pass their
    /// arguments on.
    fn single(self) -> impl Iterator<Item = (u32, Single)> {
        let is_of_program = self.row().0 == OF_PROGRAM;
        let tables = GLOBALS.iter().map(|(name, _)| Single::Table(name));
        let functions = FUNCTIONS.iter().map(|(name, part)| Single::Function(name, part));
        let globals = tables.chain(functions).enumerate().filter(move |_| is_of_program);
        let globals = globals.map(|(index, global)| (1 << index, global));
        globals.chain(self.passed_on().map(|(bit, row)| (bit, Single::PassedOn(row))))
    }

    /// Returns what is made alone and has this name, with its bit.
    fn find(self, key: &mlua::Value) -> Option<(u32, Single)> {
        let name = key.as_string()?.as_bytes();
        self.single().find(|(_, single)| *name == *single.name().as_bytes())
    }
}

/// A value in a table of the library that is made without the rest of the table.
#[derive(Clone, Copy)]
enum Single {
    /// A table that is a global.
    Table(&'static str),
    /// A function that is a global, and the part or the table that makes it.
    Function(&'static str, &'static str),
    PassedOn(&'static Row),
}

impl Single {
    fn name(self) -> &'static str {
        match self {
            Self::Table(name) | Self::Function(name, _) => name,
            Self::PassedOn(row) => row.1,
        }
    }
}

fn address(table: &Table) -> usize {
    table.to_pointer() as usize
}

impl Lazy {
    /// Adds the tables that the prelude has made.
    pub(crate) fn begin(&self, lua: &Lua, own: &Table) -> mlua::Result<()> {
        self.add(&lua.globals(), OF_PROGRAM);
        self.add(own, OF_PARTS);
        self.add(&own.raw_get::<Table>("libraries")?.raw_get("string")?, "string");
        Ok(())
    }

    /// Adds a table. Returns `false` if there is none of this name.
    fn add(&self, table: &Table, name: &str) -> bool {
        let mut rows = (0..).zip(GLOBALS.iter().chain(OTHERS));
        let Some((row, _)) = rows.find(|(_, known)| known.0 == name) else { return false };
        let (mut entries, table) = (self.0.lock(), address(table));
        // The address may have belonged to a table that was collected.
        entries.retain(|entry| entry.table != table);
        entries.push(Entry { table, row, loaded: 0, made: 0 });
        true
    }

    /// Makes a table a part of the library. Returns `false` if there is none of this name.
    pub(crate) fn make_lazy(&self, lua: &Lua, table: &Table, name: &str) -> mlua::Result<bool> {
        let is_known = self.add(table, name);
        if is_known {
            table.set_metatable(Some(own(lua)?.raw_get("lazy")?))?;
        }
        Ok(is_known)
    }

    /// Returns a table of the library, even if the program has removed it from the globals.
    pub(crate) fn library(&self, lua: &Lua, name: &str) -> mlua::Result<Table> {
        let libraries: Table = own(lua)?.raw_get("libraries")?;
        if let Some(known) = libraries.raw_get(name)? {
            return Ok(known);
        }
        let table = lua.create_table()?;
        if !self.make_lazy(lua, &table, name)? {
            return Err(mlua::Error::runtime("the library has no such table"));
        }
        libraries.raw_set(name, &table)?;
        Ok(table)
    }

    fn entry(&self, table: &Table) -> Option<Entry> {
        let table = address(table);
        self.0.lock().iter().find(|entry| entry.table == table).copied()
    }

    fn change(&self, table: &Table, change: impl FnOnce(&mut Entry)) {
        let (mut entries, table) = (self.0.lock(), address(table));
        if let Some(entry) = entries.iter_mut().find(|entry| entry.table == table) {
            change(entry);
        }
    }

    /// Serves an access to a table: a read of a key, a write, or a traversal.
    pub(crate) fn access(
        &self,
        lua: &Lua,
        parts: &[Part],
        table: &Table,
        rest: &[mlua::Value],
    ) -> mlua::Result<MultiValue> {
        let Some(entry) = self.entry(table) else { return Ok(MultiValue::new()) };
        match rest {
            [key] => Ok(MultiValue::from_iter([self.read(lua, parts, table, entry, key)?])),
            [key, value] => {
                self.load_all(lua, parts, table)?;
                if let Some((bit, _)) = entry.find(key) {
                    self.change(table, |entry| entry.made |= bit);
                }
                table.raw_set(key, value)?;
                Ok(MultiValue::new())
            }
            _ => {
                self.load_all(lua, parts, table)?;
                for (bit, single) in entry.single().filter(|(bit, _)| entry.made & bit == 0) {
                    self.make(lua, parts, table, bit, single)?;
                }
                table.set_metatable(None)?;
                let next: Function = own(lua)?.raw_get("next")?;
                Ok(MultiValue::from_iter([
                    mlua::Value::Function(next),
                    mlua::Value::Table(table.clone()),
                ]))
            }
        }
    }

    fn read(
        &self,
        lua: &Lua,
        parts: &[Part],
        table: &Table,
        entry: Entry,
        key: &mlua::Value,
    ) -> mlua::Result<mlua::Value> {
        if let Some((bit, single)) = entry.find(key) {
            return match entry.made & bit == 0 {
                true => self.make(lua, parts, table, bit, single),
                false => Ok(mlua::Value::Nil),
            };
        }
        while self.load(lua, parts, table)? {
            let found: mlua::Value = table.raw_get(key)?;
            if !found.is_nil() {
                return Ok(found);
            }
        }
        Ok(mlua::Value::Nil)
    }

    /// Makes a value alone.
    fn make(
        &self,
        lua: &Lua,
        parts: &[Part],
        table: &Table,
        bit: u32,
        single: Single,
    ) -> mlua::Result<mlua::Value> {
        let made = match single {
            Single::Table(name) => mlua::Value::Table(self.library(lua, name)?),
            Single::Function(name, part) => self.function(lua, parts, name, part)?,
            Single::PassedOn(row) => mlua::Value::Function(passed_on(lua, parts, row)?),
        };
        table.raw_set(single.name(), &made)?;
        self.change(table, |entry| entry.made |= bit);
        Ok(made)
    }

    /// Makes a function that is a global, with the other functions of its part.
    fn function(
        &self,
        lua: &Lua,
        parts: &[Part],
        name: &str,
        part: &str,
    ) -> mlua::Result<mlua::Value> {
        let late: Table = own(lua)?.raw_get("late")?;
        let known: mlua::Value = late.raw_get(name)?;
        if !known.is_nil() {
            return Ok(known);
        }
        match GLOBALS.iter().any(|(table, _)| *table == part) {
            true => self.load_all(lua, parts, &self.library(lua, part)?)?,
            false => run(lua, parts, &late, part)?,
        }
        late.raw_get(name)
    }

    fn load_all(&self, lua: &Lua, parts: &[Part], table: &Table) -> mlua::Result<()> {
        while self.load(lua, parts, table)? {}
        Ok(())
    }

    /// Loads the next part of a table. Returns `false` if there is none.
    fn load(&self, lua: &Lua, parts: &[Part], table: &Table) -> mlua::Result<bool> {
        let Some(entry) = self.entry(table) else { return Ok(false) };
        let Some(part) = entry.row().1.get(usize::from(entry.loaded)) else { return Ok(false) };
        self.change(table, |entry| entry.loaded += 1);
        // The part fills the table without any detour.
        let metatable = table.metatable();
        table.set_metatable(None)?;
        let loaded = run(lua, parts, table, part);
        table.set_metatable(metatable)?;
        if loaded.is_err() {
            // It may succeed another time, when there is more memory.
            self.change(table, |entry| entry.loaded -= 1);
        }
        loaded.map(|()| true)
    }
}

fn own(lua: &Lua) -> mlua::Result<Table> {
    lua.named_registry_value(OWN)
}

/// Returns the methods of sockets.
pub(crate) fn socket_methods(lua: &Lua) -> mlua::Result<Table> {
    let libraries: Table = own(lua)?.raw_get("libraries")?;
    if let Some(methods) = libraries.raw_get("socket")? {
        return Ok(methods);
    }
    let native: Function = own(lua)?.raw_get("native")?;
    let (_, methods): (bool, Table) = native.call(("library", "socket"))?;
    Ok(methods)
}

/// Returns a function that passes its arguments on.
fn passed_on(
    lua: &Lua,
    parts: &[Part],
    &(_, _, settle, act, operation): &Row,
) -> mlua::Result<Function> {
    if act == PART {
        return code(lua, parts, operation)?.call(());
    }
    let own = own(lua)?;
    let make: Function = own.raw_get("make")?;
    // Not a raw access, so that it loads the part of `try` on first use.
    let (settle, act): (Function, Function) = (own.get(settle)?, own.raw_get(act)?);
    make.call((settle, act, operation))
}

/// Fills a table with the functions of a part.
fn run(lua: &Lua, parts: &[Part], table: &Table, part: &str) -> mlua::Result<()> {
    if matches!(part, "math" | "utf8") {
        for pair in open(lua, part)?.pairs::<mlua::Value, mlua::Value>() {
            let (key, value) = pair?;
            table.raw_set(key, value)?;
        }
        return Ok(());
    }
    code(lua, parts, part)?.call(table)
}

/// Returns the code of a part.
fn code(lua: &Lua, parts: &[Part], part: &str) -> mlua::Result<Function> {
    let known = parts.iter().find(|(name, _)| *name == part);
    let (_, code) = known.ok_or_else(|| mlua::Error::runtime("the library has no such part"))?;
    lua.load(&**code).set_mode(ChunkMode::Binary).set_environment(own(lua)?).into_function()
}

/// Returns the table of one of Lua's own libraries, which the program never sees.
pub(crate) fn open(lua: &Lua, name: &str) -> mlua::Result<Table> {
    let raw: Table = own(lua)?.raw_get("raw")?;
    if let mlua::Value::Table(opened) = raw.raw_get(name)? {
        return Ok(opened);
    }
    let library = match name {
        "coroutine" => StdLib::COROUTINE,
        "math" => StdLib::MATH,
        "string" => StdLib::STRING,
        "table" => StdLib::TABLE,
        "utf8" => StdLib::UTF8,
        _ => return Err(mlua::Error::runtime("Lua has no such library")),
    };
    // Lua opens a library once, so it must forget the library that the program has. It puts the
    // library into the globals, which may have a metatable that calls the program, and changes the
    // metatable of strings. So it gets other globals for this time.
    let loaded: Table = lua.named_registry_value("_LOADED")?;
    loaded.raw_set(name, mlua::Value::Nil)?;
    let (globals, strings) = (lua.globals(), lua.type_metatable::<LuaString>());
    let apart = lua.create_table()?;
    lua.set_globals(apart.clone())?;
    let opened = lua.load_std_libs(library);
    lua.set_type_metatable::<LuaString>(strings);
    lua.set_globals(globals)?;
    opened?;
    let opened: Table = apart.raw_get(name)?;
    raw.raw_set(name, &opened)?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use mlua::MultiValue;

    use crate::program::Program;

    /// A function that a process does not use takes no memory in it.
    #[test]
    fn a_waiting_process_holds_little() {
        let source = "function main() process.receive() end";
        let program = Program::load("test", source).expect("the source is valid Lua");
        let lua = program.open().expect("the program runs");
        let main = lua.globals().raw_get("main").expect("the program has it");
        let thread = lua.create_thread(main).expect("there is memory");
        let mut waits = MultiValue::new();
        // It also yields at the end of its budget, before it waits.
        while waits.is_empty() {
            waits = thread.resume(()).expect("it waits");
        }
        lua.gc_collect().expect("there are no finalizers");
        assert!(lua.used_memory() < 17_500, "{}", lua.used_memory());
    }
}
