-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so this file has only what
-- every process needs. lazy.rs makes everything else when it is first used.
local native = ...
local error, getmetatable, next, setmetatable = error, getmetatable, next, setmetatable

-- Lua's own functions and libraries that parts replace, and what parts have for each other.
local raw = { load = load, pcall = pcall, xpcall = xpcall }
-- Functions outside of any table, for the globals of the program.
local late = {}
-- The metatable of the tables of the library.
local lazy = {}
-- The functions of `string` that neither loop for long nor run code of the program. Methods of texts
-- are looked up here.
local string = { byte = string.byte, char = string.char, len = string.len, sub = string.sub }
-- The globals of the parts: what the program cannot replace.
local own = {
  error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs, rawget = rawget,
  rawset = rawset, select = select, setmetatable = setmetatable, tonumber = tonumber, tostring = tostring,
  type = type, can_yield = coroutine.isyieldable, globals = _G, late = late, lazy = lazy,
  libraries = { string = string }, native = native, raw = raw, yield = coroutine.yield,
}

-- Raises the error of a native function or a step at the place where the program called. It must be
-- the tail call of the function that the program called.
function own.check(ok, value, ...)
  if not ok then error(value, 2) end
  return value, ...
end

-- Returns a function that passes its arguments on to an operation.
function own.make(settle, act, name)
  return function(...) return settle(act(name, ...)) end
end
local access = own.make(own.check, native, "lazy")
lazy.__index, lazy.__newindex, lazy.__pairs = access, access, access

getmetatable("").__index = string
for _, name in next, {
  "collectgarbage", "coroutine", "dofile", "getmetatable", "load", "loadfile", "next", "pcall", "print", "rawget",
  "rawset", "setmetatable", "string", "warn", "xpcall",
} do _G[name] = nil end
for _, table in next, { _G, own, string } do setmetatable(table, lazy) end

return own
