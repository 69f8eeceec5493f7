//! The hook that Lua calls after each period of instructions.
//!
//! It is not a hook of `mlua`. If such a hook returns an error, `mlua` first empties the frame of
//! the function that was running. Lua then closes the `<close>` variables of the frame inside of
//! the hook, where it calls no hooks, so nothing could end their handlers. And functions that share
//! variables with that frame would see values of `mlua`. This hook raises errors itself. The frame
//! stays as it is, and Lua leaves it as after any other error.
//!
//! The errors are tables with a metatable that makes their texts. Handlers of errors run inside of
//! the hook, including a handler of `mlua` that asks for a text. A program could set such a
//! function for texts.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use mlua::ffi::{self, lua_Debug, lua_State};
use mlua::{Lua, Table};
use procession::process::catch_panic;

/// The end of the text of the errors that the hook raises. Once the process must end, it is the
/// text.
pub(crate) const CAUSE: &str = "the process computed for too long where it cannot be suspended";

/// What happens after a call of the hook.
#[derive(Debug)]
pub(crate) enum Verdict {
    Continue,
    Suspend,
    /// The code fails, and the error says where.
    Fail,
    /// The process must end, and each instruction fails.
    End,
}

/// What the hook asks.
pub(crate) trait Asked: Send + Sync {
    /// Returns what happens after `passed` instructions.
    fn look(&self, lua: &Lua, passed: u32) -> Verdict;

    /// Returns the instructions until the next call of the hook.
    fn period(&self) -> u32;

    /// Notes that the hook ends now.
    fn note_look(&self);
}

/// The place of the error of a process that must end, in the registry. It is the metatable of
/// itself and of the other errors.
fn key() -> *const c_void {
    static KEY: u8 = 0;
    (&raw const KEY).cast()
}

/// Lets the hook of a state ask this. The hook is not set yet.
///
/// # Errors
/// Returns an error if there is no memory.
#[expect(unsafe_code, reason = "functions of C, and a key without a text, have no safe interface")]
pub(crate) fn prepare(lua: &Lua, asked: Arc<dyn Asked>) -> mlua::Result<()> {
    lua.set_app_data(asked);
    let error = lua.create_table()?;
    error.raw_set(1, CAUSE)?;
    // SAFETY: `text` keeps the rules of functions of C.
    error.raw_set("__tostring", unsafe { lua.create_c_function(text) }?)?;
    error.raw_set("__metatable", false)?;
    error.set_metatable(Some(error.clone()))?;
    let keep = |state: *mut lua_State| {
        // SAFETY: the table is the only argument of this function. If there is no memory,
        // `exec_raw` catches the error, and nothing here has a drop.
        unsafe { ffi::lua_rawsetp(state, ffi::LUA_REGISTRYINDEX, key()) };
    };
    // SAFETY: the closure may be left by an error, as above.
    unsafe { lua.exec_raw(error, keep) }
}

/// Returns the text of an error of the hook, or `None` for another value.
#[expect(unsafe_code, reason = "a key without a text has no safe interface")]
pub(crate) fn text_of(lua: &Lua, error: &mlua::Value) -> Option<mlua::Value> {
    let mlua::Value::Table(error) = error else { return None };
    let get = |state: *mut lua_State| {
        // SAFETY: there is room for a value, and this takes no memory.
        unsafe { ffi::lua_rawgetp(state, ffi::LUA_REGISTRYINDEX, key()) };
    };
    // SAFETY: nothing in the closure has a drop.
    let metatable: Table = unsafe { lua.exec_raw((), get) }.ok()?;
    if error.metatable()? != metatable {
        return None;
    }
    error.raw_get(1).ok()
}

/// Returns the text of an error of the hook.
///
/// # Safety
/// Only Lua calls this.
#[expect(unsafe_code, reason = "a function of C has no safe interface")]
unsafe extern "C-unwind" fn text(thread: *mut lua_State) -> c_int {
    // SAFETY: the thread is valid. A program may have called this with anything.
    if unsafe { ffi::lua_type(thread, 1) } != ffi::LUA_TTABLE {
        return 0;
    }
    // SAFETY: the argument is a table, and there is room for a value.
    unsafe { ffi::lua_rawgeti(thread, 1, 1) };
    1
}

/// Sets the hook of the current Lua thread, and of the threads that are created in it from now on.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
pub(crate) fn set(lua: &Lua, period: u32) {
    // SAFETY: the thread is valid while the state is borrowed, and is one of `mlua`.
    lua.exec_raw_lua(|lua| unsafe { set_thread(lua.state(), period) });
}

/// # Safety
/// `thread` is a valid thread of a state of `mlua`.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
unsafe fn set_thread(thread: *mut lua_State, period: u32) {
    let period = c_int::try_from(period).unwrap_or(c_int::MAX);
    // SAFETY: the caller promises what `hook` needs.
    unsafe { ffi::lua_sethook(thread, Some(hook), ffi::LUA_MASKCOUNT, period) };
}

/// Asks what a state has for that, and sets the next period. `passed` is the period that has
/// passed.
///
/// # Safety
/// `thread` is a valid thread of the state.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
unsafe fn ask(lua: &Lua, thread: *mut lua_State, passed: u32) -> Verdict {
    let Some(asked) = lua.app_data_ref::<Arc<dyn Asked>>() else { return Verdict::Continue };
    let verdict = asked.look(lua, passed);
    let period = asked.period();
    if period != passed {
        // SAFETY: the thread is valid, and its state is one of `mlua`.
        unsafe { set_thread(thread, period) };
        // In a deep stack, this has taken longer than the code of the program that it delays.
        asked.note_look();
    }
    verdict
}

/// The hook, as Lua calls it.
///
/// # Safety
/// `thread` runs, in a state of `mlua`, and Lua calls this as its count hook.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
unsafe extern "C-unwind" fn hook(thread: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: the thread runs, so its state stays open until this returns.
    let lua = unsafe { Lua::get_or_init_from_ptr(thread) };
    // SAFETY: the thread is valid.
    let passed = u32::try_from(unsafe { ffi::lua_gethookcount(thread) }).unwrap_or(1);
    // A panic must not pass through Lua. It is printed, and the program fails.
    // SAFETY: the thread is valid.
    let asked = catch_panic(|| unsafe { ask(lua, thread, passed) });
    // From here on nothing has a drop, because an error of Lua skips it.
    let verdict = asked.unwrap_or(Verdict::Fail);
    match verdict {
        Verdict::Continue => {}
        Verdict::Suspend => {
            // SAFETY: the thread is valid.
            if unsafe { ffi::lua_isyieldable(thread) } != 0 {
                // SAFETY: a count hook may yield without values. In a hook, this returns, and Lua
                // suspends the thread after the hook.
                unsafe { ffi::lua_yield(thread, 0) };
            }
        }
        Verdict::Fail => {
            // SAFETY: in a hook there is room for 20 values. If there is no memory for the error,
            // that is the error. It skips only this frame. The same holds below.
            unsafe { ffi::lua_createtable(thread, 1, 0) };
            // SAFETY: as above. Level 0 is the function that was interrupted.
            unsafe { ffi::luaL_where(thread, 0) };
            // SAFETY: as above.
            unsafe { ffi::lua_pushlstring(thread, CAUSE.as_ptr().cast(), CAUSE.len()) };
            // SAFETY: as above. This joins the two texts.
            unsafe { ffi::lua_concat(thread, 2) };
            // SAFETY: as above. The table is below the text.
            unsafe { ffi::lua_rawseti(thread, -2, 1) };
            // SAFETY: as above.
            unsafe { ffi::lua_rawgetp(thread, ffi::LUA_REGISTRYINDEX, key()) };
            // SAFETY: as above. The metatable is above the table.
            unsafe { ffi::lua_setmetatable(thread, -2) };
            // SAFETY: a hook may raise an error, which is the last value.
            unsafe { ffi::lua_error(thread) }
        }
        Verdict::End => {
            // SAFETY: as above.
            unsafe { ffi::lua_rawgetp(thread, ffi::LUA_REGISTRYINDEX, key()) };
            // SAFETY: as above.
            unsafe { ffi::lua_error(thread) }
        }
    }
}
