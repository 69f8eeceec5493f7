//! The frame of the function that a hook ends.
//!
//! If a hook returns an error, `mlua` empties the frame of the function that was running before it
//! raises the error. Lua then closes the `<close>` variables of the frame inside of the hook, where
//! it calls no hooks. Nothing could end a handler that is called there. So the frame loses its
//! values first.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use mlua::Lua;
use mlua::ffi::{self, lua_Debug, lua_State};

/// The place of the table that replaces values, in the registry of each state.
fn key() -> *const c_void {
    static KEY: u8 = 0;
    (&raw const KEY).cast()
}

/// Makes the table that replaces values. A program may get it: a variable of the ended function may
/// be one of another function, too. So it has nothing of the library's.
///
/// # Errors
/// Returns an error if there is no memory.
#[expect(unsafe_code, reason = "a key without a text has no safe interface")]
pub(crate) fn prepare(lua: &Lua) -> mlua::Result<()> {
    let inert = lua.create_table()?;
    // A function of C that ends at once.
    inert.raw_set("__close", lua.globals().raw_get::<mlua::Function>("type")?)?;
    inert.raw_set("__metatable", false)?;
    inert.set_metatable(Some(inert.clone()))?;
    let keep = |state: *mut lua_State| {
        // SAFETY: the table is the only argument of this function. If there is no memory,
        // `exec_raw` catches the error, and nothing here has a drop.
        unsafe { ffi::lua_rawsetp(state, ffi::LUA_REGISTRYINDEX, key()) };
    };
    // SAFETY: the closure may be left by an error, as above.
    unsafe { lua.exec_raw(inert, keep) }
}

/// Replaces the values of the running function, which must not go on. Only a hook that returns an
/// error may call this.
///
/// It calls nothing that may fail: the handler of such an error could be code of the program, which
/// would run inside of the hook.
#[expect(unsafe_code, reason = "the variables of a function have no safe interface")]
pub(crate) fn clear(lua: &Lua) {
    lua.exec_raw_lua(|lua| {
        let state = lua.state();
        let mut frame = MaybeUninit::<lua_Debug>::zeroed();
        // SAFETY: `state` is the thread whose hook runs, and Lua writes the record. In a hook,
        // level 0 is the function that was interrupted.
        if unsafe { ffi::lua_getstack(state, 0, frame.as_mut_ptr()) } == 0 {
            return;
        }
        // SAFETY: the state is valid.
        let top = unsafe { ffi::lua_gettop(state) };
        // SAFETY: Lua keeps 20 places for a hook, and this uses two. No memory is needed.
        unsafe { ffi::lua_rawgetp(state, ffi::LUA_REGISTRYINDEX, key()) };
        for number in 1..=top {
            // SAFETY: the place is one of the frame.
            let kind = unsafe { ffi::lua_type(state, number) };
            if number == 1 && kind == ffi::LUA_TUSERDATA {
                // It may be the error that `mlua` has made room for.
                continue;
            }
            // SAFETY: the table is above the values of the frame.
            unsafe { ffi::lua_pushvalue(state, top + 1) };
            // SAFETY: the frame was filled above, and has a place with this number. The function
            // does not run again, since the hook ends it. What is around it in C has no pointers
            // into the values of a function of Lua.
            unsafe { ffi::lua_setlocal(state, frame.as_ptr(), number) };
        }
        // SAFETY: this removes the table. The variables that are to be closed are below it.
        unsafe { ffi::lua_settop(state, top) };
    });
}
