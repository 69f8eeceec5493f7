//! The frame of the function that a hook ends.
//!
//! If a hook returns an error, `mlua` empties the frame of the function that was running before it
//! raises the error. Lua then closes the `<close>` variables of the frame inside of the hook, where
//! it calls no hooks. Nothing could end a handler that is called there. So the frame loses its
//! values first.

use std::mem::MaybeUninit;

use mlua::ffi::{self, lua_Debug, lua_State};
use mlua::{Lua, Table};

/// Replaces the values of the running function, which must not go on. Only a hook that returns an
/// error may call this. The handler `__close` of `by` must be a function of C that ends soon.
///
/// Functions and userdata stay: they cannot be in a `<close>` variable that a program could make
/// run for long, and `mlua` has some of its own in the frame.
///
/// # Errors
/// Returns an error if there is no memory for a call.
#[expect(unsafe_code, reason = "the variables of a function have no safe interface")]
pub(crate) fn clear(lua: &Lua, by: &Table) -> mlua::Result<()> {
    let replace = |state: *mut lua_State| {
        let mut frame = MaybeUninit::<lua_Debug>::zeroed();
        // SAFETY: `state` is the running thread, and Lua writes the record. Level 0 is the function
        // of `exec_raw`, so 1 is the function that the hook has interrupted.
        if unsafe { ffi::lua_getstack(state, 1, frame.as_mut_ptr()) } == 0 {
            return;
        }
        for number in 1.. {
            // SAFETY: the frame was filled above, and it is still on the stack. The new C frame has
            // room for 20 values, and there are at most two at a time.
            if unsafe { ffi::lua_getlocal(state, frame.as_ptr(), number) }.is_null() {
                return;
            }
            // SAFETY: the value was pushed just now.
            let kind = unsafe { ffi::lua_type(state, -1) };
            // SAFETY: the same.
            unsafe { ffi::lua_settop(state, 1) };
            if kind == ffi::LUA_TFUNCTION || kind == ffi::LUA_TUSERDATA {
                continue;
            }
            // SAFETY: the table is the only argument of this function.
            unsafe { ffi::lua_pushvalue(state, 1) };
            // SAFETY: the number is one of the frame, as `lua_getlocal` has found. The function of
            // the frame does not run again, since the hook ends it. What is around it in C has no
            // pointers into the values of a function of Lua.
            unsafe { ffi::lua_setlocal(state, frame.as_ptr(), number) };
        }
    };
    // SAFETY: no call above raises an error, so the closure returns. Its captures have no drops.
    unsafe { lua.exec_raw(by, replace) }
}
