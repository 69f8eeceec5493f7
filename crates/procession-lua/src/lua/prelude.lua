-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so this file has only what
-- every process needs. lazy.rs makes all other functions when they are first used.
local native, commands, pids, log, package = ...

setmetatable(pids, { __mode = "v" })
local can_yield, yield = coroutine.isyieldable, coroutine.yield
local error, next, rawget, type = error, next, rawget, type
local raw_pcall, raw_setmetatable = pcall, setmetatable

-- Lua's own functions and libraries that parts replace, and what parts have for each other.
local raw = { commands = commands, load = load, pcall = raw_pcall, xpcall = xpcall }
-- Functions outside of any table that parts have.
local late = {}
-- The globals of the parts: what the program cannot replace. Others are globals of the program.
local own = {
  error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, select = select,
  setmetatable = raw_setmetatable, tonumber = tonumber, tostring = tostring, type = type,
  can_yield = can_yield, late = late, log_part = log, native = native, raw = raw, yield = yield, __index = _G,
}
raw_setmetatable(own, own)

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

-- Returns a function that passes its arguments on to an operation.
function own.make(settle, act, name)
  return function(...) return settle(act(name, ...)) end
end

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
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  return raw_setmetatable(value, metatable)
end

for _, name in next, { "dofile", "loadfile", "warn", "collectgarbage" } do _G[name] = nil end
-- Functions that loop in C, or that run code of the program. The parts have replacements.
for owner, fields in next, {
  [coroutine] = { "close", "resume", "wrap", "yield" },
  [string] = {
    "dump", "find", "format", "gmatch", "gsub", "lower", "match", "pack", "packsize", "rep", "reverse", "unpack",
    "upper",
  },
} do
  for _, field in next, fields do owner[field] = nil end
end

for name, owner in next, { load = late, xpcall = late, print = log, require = package } do
  _G[name] = function(...)
    if not late[name] then native("lazy", owner) end
    return late[name](...)
  end
end

return own
