//! The call of the function of a process.
//!
//! `mlua` resumes a Lua thread without a protected call in it. If an error leaves the thread,
//! `mlua` closes the `<close>` variables of the function that has failed where nothing catches the
//! errors of their handlers: such an error would abort the program. So the function runs inside of
//! a protected call, which closes the variables of all functions as `pcall` does.

use std::ffi::c_int;
use std::ptr::null_mut;

use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, MultiValue, Thread};

use crate::interrupt::CAUSE;

/// Creates a Lua thread that calls its first argument with the other arguments. It ends without an
/// error, with what [`outcome`] takes.
///
/// # Errors
/// Returns an error if there is no memory.
#[expect(unsafe_code, reason = "a function of C has no safe interface")]
pub(crate) fn thread(lua: &Lua) -> mlua::Result<Thread> {
    // SAFETY: `call` keeps the rules of functions of C, and has no drop that an error would skip.
    let call: Function = unsafe { lua.create_c_function(call) }?;
    lua.create_thread(call)
}

/// Returns the first result of the function that a thread has called, or its error.
pub(crate) fn outcome(mut results: MultiValue) -> mlua::Result<mlua::Value> {
    let succeeded = results.pop_front();
    let value = results.pop_front().unwrap_or(mlua::Value::Nil);
    if succeeded == Some(mlua::Value::Boolean(true)) {
        return Ok(value);
    }
    Err(match value {
        mlua::Value::Error(error) => *error,
        mlua::Value::String(text) => mlua::Error::runtime(text.to_string_lossy()),
        other => mlua::Error::runtime(other.to_string()?),
    })
}

/// Calls the first value with the other values. Leaves `true` and the results, or `false` and the
/// error.
///
/// # Safety
/// Only Lua calls this, in the thread that [`thread`] creates.
#[expect(unsafe_code, reason = "a function of C has no safe interface")]
unsafe extern "C-unwind" fn call(thread: *mut lua_State) -> c_int {
    // SAFETY: the thread runs this function. The first argument is the function of the process.
    let arguments = unsafe { ffi::lua_gettop(thread) } - 1;
    // SAFETY: there is room for 20 values.
    unsafe { ffi::lua_pushboolean(thread, 1) };
    // SAFETY: as above.
    unsafe { ffi::lua_pushboolean(thread, 1) };
    // SAFETY: as above. If there is no memory, this raises an error, and nothing here has a drop.
    unsafe { ffi::lua_pushcclosure(thread, traceback, 1) };
    // SAFETY: this moves the two values below the other values.
    unsafe { ffi::lua_rotate(thread, 1, 2) };
    let (results, handler) = (ffi::LUA_MULTRET, 2);
    // SAFETY: the function and its arguments are above the handler. If the process is suspended in
    // it, `finish` continues, and this function has no drop.
    let status = unsafe { ffi::lua_pcallk(thread, arguments, results, handler, 0, Some(finish)) };
    // SAFETY: this is after the protected call.
    unsafe { finish(thread, status, 0) }
}

/// Ends [`call`], also after the process was suspended in it.
///
/// # Safety
/// Only Lua and [`call`] call this, after the protected call.
#[expect(unsafe_code, reason = "a function of C has no safe interface")]
unsafe extern "C-unwind" fn finish(
    thread: *mut lua_State,
    status: c_int,
    _: ffi::lua_KContext,
) -> c_int {
    if status != ffi::LUA_OK && status != ffi::LUA_YIELD {
        // SAFETY: the error has left room for another value.
        unsafe { ffi::lua_pushboolean(thread, 0) };
        // SAFETY: the first place has `true`.
        unsafe { ffi::lua_replace(thread, 1) };
    }
    // SAFETY: the second place has the handler.
    unsafe { ffi::lua_remove(thread, 2) };
    // SAFETY: the thread is valid.
    unsafe { ffi::lua_gettop(thread) }
}

/// Adds a traceback to the text of the first error. Further errors are only from the handlers of
/// `<close>` variables, of which there may be very many. If these are functions of C, no hook could
/// end them, and a traceback takes long if the program has many globals.
///
/// Lua may call this in a hook, where nothing could end code of the program. The errors of the hook
/// have a metatable that the program cannot change. A process that must end has many errors with
/// the text [`CAUSE`].
///
/// # Safety
/// Only Lua calls this, as the handler of an error.
#[expect(unsafe_code, reason = "a function of C has no safe interface")]
unsafe extern "C-unwind" fn traceback(thread: *mut lua_State) -> c_int {
    // SAFETY: the error is the only argument.
    match unsafe { ffi::lua_type(thread, 1) } {
        ffi::LUA_TSTRING => {}
        // An error of `mlua`, which has a traceback, or a value of the library.
        ffi::LUA_TUSERDATA => return 1,
        _ => {
            // SAFETY: there is room for 20 values. Code of the program that this calls may raise an
            // error, which skips only this frame.
            unsafe { ffi::luaL_tolstring(thread, 1, null_mut()) };
            // SAFETY: the error is in the first place.
            unsafe { ffi::lua_replace(thread, 1) };
        }
    }
    let mut length = 0;
    // SAFETY: the first place has a text.
    let text = unsafe { ffi::lua_tolstring(thread, 1, &raw mut length) };
    // SAFETY: the text has this length, and nothing changes or frees it while it is in its place.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    // SAFETY: the function has this upvalue.
    let is_first = unsafe { ffi::lua_toboolean(thread, ffi::lua_upvalueindex(1)) } != 0;
    if is_first && bytes != CAUSE.as_bytes() {
        // SAFETY: there is room for another value.
        unsafe { ffi::lua_pushboolean(thread, 0) };
        // SAFETY: the function has this upvalue.
        unsafe { ffi::lua_replace(thread, ffi::lua_upvalueindex(1)) };
        // SAFETY: Lua ends each text with a zero. An error skips only this frame.
        unsafe { ffi::luaL_traceback(thread, thread, text, 1) };
    }
    1
}
