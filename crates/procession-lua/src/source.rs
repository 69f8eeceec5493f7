//! Lua sources and their compiled code, of programs and of the library.

use crate::failure::{Error, cleaned};

/// A part of the library: its name and its code.
pub(crate) type Part = (&'static str, Vec<u8>);

/// The parts of the library, which a process loads when it first uses them.
pub(crate) const PARTS: &[(&str, &str)] = &[
    ("budget", include_str!("lua/budget.lua")),
    ("client", include_str!("lua/client.lua")),
    ("code", include_str!("lua/code.lua")),
    ("command", include_str!("lua/commands.lua")),
    ("coroutine", include_str!("lua/coroutines.lua")),
    ("fs", include_str!("lua/fs.lua")),
    ("group", include_str!("lua/groups.lua")),
    ("http", include_str!("lua/http.lua")),
    ("io", include_str!("lua/input.lua")),
    ("log", include_str!("lua/log.lua")),
    ("metatables", include_str!("lua/metatables.lua")),
    ("net", include_str!("lua/net.lua")),
    ("node", include_str!("lua/node.lua")),
    ("os", include_str!("lua/os.lua")),
    ("package", include_str!("lua/package.lua")),
    ("patterns", include_str!("lua/patterns.lua")),
    ("pcall", include_str!("lua/pcall.lua")),
    ("raw", include_str!("lua/raw.lua")),
    ("receive", include_str!("lua/receive.lua")),
    ("send", include_str!("lua/send.lua")),
    ("socket", include_str!("lua/socket.lua")),
    ("string", include_str!("lua/strings.lua")),
    ("supervisor", include_str!("lua/supervisor.lua")),
    ("table", include_str!("lua/lists.lua")),
    ("tables", include_str!("lua/tables.lua")),
    ("try", include_str!("lua/try.lua")),
];

/// Compiles a source. `strip` leaves out the information about lines.
pub(crate) fn compile(name: &str, source: &[u8], strip: bool) -> mlua::Result<Vec<u8>> {
    let lua = mlua::Lua::new_with(mlua::StdLib::NONE, mlua::LuaOptions::new())?;
    let chunk = lua.load(source).set_mode(mlua::chunk::ChunkMode::Text).set_name(name);
    chunk.into_function().map(|function| function.dump(strip))
}

/// Returns the Lua text of a file: without the byte order mark that some editors put at the
/// beginning, and without a first line that is meant for the shell.
pub(crate) fn lua_text(source: &[u8]) -> &[u8] {
    let source = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    if !source.starts_with(b"#") {
        return source;
    }
    let end = source.iter().position(|&byte| byte == b'\n').unwrap_or(source.len());
    &source[end..]
}

pub(crate) fn load_error(program: &str, error: &mlua::Error) -> Error {
    Error::Load { program: program.to_owned(), cause: cleaned(&error.to_string()) }
}
