-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so this file has only what
-- every process needs. lazy.rs makes everything else when it is first used.
local native = ...
local error = error

-- Raises the error of a native function or a step at the place where the program called. It must be
-- the tail call of the function that the program called.
local function check(ok, value, ...)
  if not ok then error(value, 2) end
  return value, ...
end

-- Returns a function that passes its arguments on to an operation.
local function make(settle, act, name)
  return function(...) return settle(act(name, ...)) end
end

local access = make(check, native, "lazy")
-- The metatable of the tables of the library.
local lazy = { __index = access, __newindex = access, __pairs = access }
-- The functions of `string` that neither loop for long nor run code of the program. Methods of texts
-- are looked up here.
local string = { byte = string.byte, char = string.char, len = string.len, sub = string.sub }
-- The globals of the parts: what the program cannot replace. `raw` has Lua's own functions and
-- libraries that parts replace, and what parts have for each other. `late` has the functions outside
-- of any table, for the globals of the program.
local own = {
  check = check, error = error, getmetatable = getmetatable, ipairs = ipairs, make = make, next = next,
  pairs = pairs, rawget = rawget, rawset = rawset, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, can_yield = coroutine.isyieldable, globals = _G,
  late = {}, lazy = lazy, libraries = { string = string }, native = native,
  raw = { load = load, pcall = pcall, xpcall = xpcall }, yield = coroutine.yield,
}

getmetatable("").__index = string
local set = setmetatable
-- Without loops and tables, since this runs at the start of each process.
collectgarbage, coroutine, dofile, getmetatable, load, loadfile, next, pcall = nil
print, rawget, rawset, setmetatable, warn, xpcall = nil
_G.string = nil
set(_G, lazy)
set(own, lazy)
set(string, lazy)

return own
