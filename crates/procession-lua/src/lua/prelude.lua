-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so this file has only what
-- every process needs. Everything else is in parts, each in a file of its own, which runs when one
-- of its functions is first used.
local native, commands, pids = ...

setmetatable(pids, { __mode = "v" })
local can_yield, yield = coroutine.isyieldable, coroutine.yield
local error, next, rawget, type = error, next, rawget, type
local raw_pcall, raw_setmetatable = pcall, setmetatable

-- Lua's own functions that parts replace, and what parts have for each other.
local raw = { commands = commands, load = load, pcall = raw_pcall, xpcall = xpcall }
-- The globals of the parts: what the program cannot replace. Others are globals of the program.
local env = {
  error = error, getmetatable = getmetatable, ipairs = ipairs, select = select, setmetatable = raw_setmetatable,
  tonumber = tonumber, tostring = tostring, type = type,
  can_yield = can_yield, native = native, raw = raw, yield = yield, __index = _G,
}
raw_setmetatable(env, env)

-- Raises the error of a native function or a step at the place where the program called. It must be
-- the tail call of the function that the program called.
function env.check(ok, value, ...)
  if not ok then error(value, 2) end
  return value, ...
end

-- Like check, for failures of the outside world, such as files and sockets: these are results.
function env.try(ok, value)
  if not ok then return nil, value end
  return value
end

-- Work in C counts as if it were instructions, and the process pauses after too much of it. Where
-- it cannot pause, it ends if that goes on for too long.
function env.pause(work)
  local ok, due = native("spend", work, can_yield())
  if not ok then error(due, 0) end
  if due then yield() end
end

-- A process that must end for exceeding its budget cannot catch that error.
function env.is_doomed()
  local _, doomed = native("doomed")
  return doomed
end
local is_doomed = env.is_doomed
function env.settle(ok, ...)
  if not ok and is_doomed() then error((...), 0) end
  return ok, ...
end
local settle = env.settle
function pcall(...) return settle(raw_pcall(...)) end

-- A finalizer would run where it cannot be interrupted.
function setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  return raw_setmetatable(value, metatable)
end

for _, name in next, { "dofile", "loadfile", "warn", "collectgarbage" } do _G[name] = nil end
string.dump = nil
-- Functions that loop in C, or that run code of the program.
for name, fields in next, {
  coroutine = { "close", "resume", "wrap", "yield" },
  string = { "find", "gmatch", "gsub", "lower", "match", "rep", "reverse", "upper" },
  table = { "concat", "insert", "move", "remove", "sort", "unpack" },
} do
  local owner = _G[name]
  for _, field in next, fields do
    raw[field], owner[field] = owner[field], nil
  end
end

-- The tables that lack functions, with the names of the parts that have them.
local parts, load_part = {}, nil
local lazy = {}
function lazy.__index(part, key)
  load_part(part)
  return part[key]
end
function lazy.__newindex(part, key, value)
  load_part(part)
  part[key] = value
end
function lazy.__pairs(part)
  while parts[part] do load_part(part) end
  return next, part, nil
end
function env.set_lazy(part, name)
  parts[part] = name
  return raw_setmetatable(part, lazy)
end
local set_lazy = env.set_lazy
-- The methods of sockets are in the same parts as the functions of `net`.
local net, socket = {}, {}
function load_part(part)
  local name = parts[part]
  local both = (part == net or part == socket) and { net, socket } or { part }
  for i = 1, #both do
    parts[both[i]] = nil
    raw_setmetatable(both[i], nil)
  end
  local ok, found = native("part", name, env)
  if ok and type(found) == "table" then
    -- A library of Lua.
    raw[name] = found
    for key, value in next, found do part[key] = value end
  elseif ok then
    ok, found = raw_pcall(found, both[1], both[2])
  end
  if ok then return end
  -- It may succeed another time, when there is more memory.
  for i = 1, #both do set_lazy(both[i], name) end
  error(found, 0)
end
env.load_part = load_part

for _, name in next, {
  "command", "fs", "group", "http", "io", "json", "log", "math", "node", "os", "package", "process", "supervisor", "time", "utf8",
} do
  _G[name] = set_lazy({}, name)
end
_G.net = set_lazy(net, "net")
set_lazy(socket, "net")
for _, name in next, { "coroutine", "string", "table" } do set_lazy(_G[name], name) end

-- Functions outside of any table, with the part that has them.
env.late = {}
local late = env.late
local code, math = set_lazy({}, "code"), math
env.log_part = log
-- Returns Lua's own library, whatever the program made of its table.
function env.open_math()
  if not raw.math then load_part(math) end
  return raw.math
end
for name, owner in next, { load = code, xpcall = code, print = log, require = package } do
  _G[name] = function(...)
    if not late[name] then load_part(owner) end
    return late[name](...)
  end
end

return socket
