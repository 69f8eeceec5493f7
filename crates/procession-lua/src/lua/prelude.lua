-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so this file has only what
-- every process needs. lazy.rs makes all other functions when they are first used.
local native, commands, pids, log, package = ...

setmetatable(pids, { __mode = "v" })
local can_yield, yield = coroutine.isyieldable, coroutine.yield
local error, type = error, type
local raw_getmetatable, raw_next, raw_pcall, raw_setmetatable = getmetatable, next, pcall, setmetatable
local raw_rawget = rawget

-- Lua's own functions and libraries that parts replace, and what parts have for each other.
local raw = { commands = commands, load = load, pcall = raw_pcall, xpcall = xpcall }
-- Functions outside of any table that parts have.
local late = {}
-- The metatable of the tables of the library.
local lazy = {}
-- The globals of the parts: what the program cannot replace. There are no others, so the globals of
-- the program are a table here.
local own = {
  error = error, getmetatable = raw_getmetatable, ipairs = ipairs, next = raw_next, pairs = pairs,
  select = select, setmetatable = raw_setmetatable, tonumber = tonumber, tostring = tostring, type = type,
  can_yield = can_yield, globals = _G, late = late, lazy = lazy, log_part = log, native = native, raw = raw,
  yield = yield,
}

-- Raises the error of a native function or a step at the place where the program called. It must be
-- the tail call of the function that the program called.
function own.check(ok, value, ...)
  if not ok then error(value, 2) end
  return value, ...
end

-- Like check, for failures of the outside world, such as files and sockets: these are results.
function own.try(ok, value)
  if not ok then return nil, value end
  return value
end

local check = own.check

-- Makes all functions of a table of the library, unless that was done before.
local function fill(value)
  if raw_getmetatable(value) == lazy then check(native("lazy", value)) end
end

-- Returns a function that passes its arguments on to an operation.
function own.make(settle, act, name)
  return function(...) return settle(act(name, ...)) end
end
local access = own.make(check, native, "lazy")
lazy.__index, lazy.__newindex, lazy.__pairs = access, access, access

-- Work in C counts as if it were instructions, and the process pauses after too much of it. Where
-- it cannot pause, it ends if that goes on for too long.
function own.pause(work)
  local ok, due = native("spend", work, can_yield())
  if not ok then error(due, 0) end
  if due then yield() end
end

-- A process that must end for exceeding its budget cannot catch that error.
function own.is_doomed()
  local _, doomed = native("doomed")
  return doomed
end
local is_doomed = own.is_doomed
function own.settle(ok, ...)
  if not ok and is_doomed() then error((...), 0) end
  return ok, ...
end
local settle = own.settle
function pcall(...) return settle(raw_pcall(...)) end

-- A finalizer would run where it cannot be interrupted.
function setmetatable(value, metatable)
  if type(metatable) == "table" and raw_rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  fill(value)
  return raw_setmetatable(value, metatable)
end

-- To the program, a table of the library has all of its functions and no metatable.
function getmetatable(value)
  local metatable = raw_getmetatable(value)
  if metatable == lazy then return nil end
  return metatable
end
function next(t, key)
  if key == nil then fill(t) end
  return raw_next(t, key)
end
for name, act in raw_next, { rawget = raw_rawget, rawset = rawset } do
  _G[name] = function(t, ...)
    fill(t)
    return act(t, ...)
  end
end

for _, name in raw_next, { "dofile", "loadfile", "warn", "collectgarbage" } do _G[name] = nil end
-- Functions that loop in C, or that run code of the program. The parts have replacements.
for owner, fields in raw_next, {
  [coroutine] = { "close", "resume", "wrap", "yield" },
  [string] = {
    "dump", "find", "format", "gmatch", "gsub", "lower", "match", "pack", "packsize", "rep", "reverse", "unpack",
    "upper",
  },
} do
  for _, field in raw_next, fields do owner[field] = nil end
end

for name, owner in raw_next, { load = late, xpcall = late, print = log, require = package } do
  _G[name] = function(...)
    if not late[name] then check(native("lazy", owner)) end
    return late[name](...)
  end
end

return own
