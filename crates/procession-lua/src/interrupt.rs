//! The hook that Lua calls after each period of instructions.
//!
//! It is not a hook of `mlua`. If such a hook returns an error, `mlua` first empties the frame of
//! the function that was running. Lua then closes the `<close>` variables of the frame inside of
//! the hook, where it calls no hooks, so nothing could end their handlers. And functions that share
//! variables with that frame would see values of `mlua`. This hook raises errors itself. The frame
//! stays as it is, and Lua leaves it as after any other error.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mlua::Lua;
use mlua::ffi::{self, lua_Debug, lua_State};

use crate::budget::Budget;

/// The end of the text of the errors that the hook raises. If the process must end, it is the text.
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

/// Lets the hook of a state ask this budget. The hook is not set yet.
pub(crate) fn prepare(lua: &Lua, budget: &Arc<Budget>) {
    lua.set_app_data(Arc::clone(budget));
}

/// Sets the hook of the current Lua thread, and of those that are created in it from now on.
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

/// Asks the budget of a state, and sets the next period. `passed` is the one that has passed.
///
/// # Safety
/// `thread` is a valid thread of the state.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
unsafe fn ask(lua: &Lua, thread: *mut lua_State, passed: u32) -> Verdict {
    let Some(budget) = lua.app_data_ref::<Arc<Budget>>() else { return Verdict::Continue };
    let verdict = budget.look(lua, passed);
    let period = budget.period();
    if period != passed {
        // SAFETY: the thread is valid, and its state is one of `mlua`.
        unsafe { set_thread(thread, period) };
        // In a deep stack, this has taken longer than the code of the program that it delays.
        budget.note_look();
    }
    verdict
}

/// The hook, as Lua calls it.
///
/// # Safety
/// `thread` runs, in a state of `mlua`, and Lua calls this as the count hook of it.
#[expect(unsafe_code, reason = "a hook that raises errors itself has no safe interface")]
unsafe extern "C-unwind" fn hook(thread: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: the thread runs, so its state stays open until this returns.
    let lua = unsafe { Lua::get_or_init_from_ptr(thread) };
    // SAFETY: the thread is valid.
    let passed = u32::try_from(unsafe { ffi::lua_gethookcount(thread) }).unwrap_or(1);
    // A panic must not pass through Lua. It was reported, and the program fails.
    // SAFETY: the thread is valid.
    let asked = catch_unwind(AssertUnwindSafe(|| unsafe { ask(lua, thread, passed) }));
    // From here on nothing has a drop, since an error of Lua skips it.
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
            // SAFETY: in a hook, level 0 is the function that was interrupted. There is room for 20
            // values. If there is no memory, that is the error, which skips only this frame.
            unsafe { ffi::luaL_where(thread, 0) };
            // SAFETY: as above.
            unsafe { ffi::lua_pushlstring(thread, CAUSE.as_ptr().cast(), CAUSE.len()) };
            // SAFETY: this joins the two texts.
            unsafe { ffi::lua_concat(thread, 2) };
            // SAFETY: a hook may raise an error.
            unsafe { ffi::lua_error(thread) }
        }
        Verdict::End => {
            // SAFETY: as above.
            unsafe { ffi::lua_pushlstring(thread, CAUSE.as_ptr().cast(), CAUSE.len()) };
            // SAFETY: as above.
            unsafe { ffi::lua_error(thread) }
        }
    }
}
