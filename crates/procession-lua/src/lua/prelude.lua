-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so parts that few processes
-- need are in files of their own. Such a file runs when its part is first used.
local native, command_numbers, pids = ...

setmetatable(pids, { __mode = "v" })
local yield, resume, status = coroutine.yield, coroutine.resume, coroutine.status
local can_yield = coroutine.isyieldable
local raw_pcall, raw_xpcall, raw_load = pcall, xpcall, load
local error, select, type, tostring, setmetatable, getmetatable = error, select, type, tostring, setmetatable, getmetatable
local pack, concat = table.pack, table.concat

-- Raises the error of a native function or a step at the place where the program called. It must be
-- the tail call of the function that the program called.
local function check(ok, value, ...)
  if not ok then error(value, 2) end
  return value, ...
end

-- Like check, for failures of the outside world, such as files and sockets: these are results.
local function try(ok, value)
  if not ok then return nil, value end
  return value
end

---- Safe versions of Lua's own functions

for _, name in ipairs { "dofile", "loadfile", "io", "os", "debug", "warn", "collectgarbage" } do
  _G[name] = nil
end
string.dump = nil

-- Work in C counts as if it were instructions, and the process pauses after too much of it. Where
-- it cannot pause, it ends if that goes on for too long.
local function pause(work)
  local ok, due = native("spend", work, can_yield())
  if not ok then error(due, 0) end
  if due then yield() end
end

-- A finalizer would run where it cannot be interrupted.
local raw_setmetatable = setmetatable
function setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  return raw_setmetatable(value, metatable)
end

-- Lua's own functions that loop in C, which the parts `string` and `table` replace.
local raw = {}
for name, fields in pairs {
  string = { "find", "gmatch", "gsub", "lower", "match", "rep", "reverse", "upper" },
  table = { "concat", "insert", "move", "remove", "sort", "unpack" },
} do
  local owner = _G[name]
  for _, field in ipairs(fields) do
    raw[field], owner[field] = owner[field], nil
  end
end

-- A process that must end for exceeding its budget cannot catch that error.
local function is_doomed()
  local _, doomed = native("doomed")
  return doomed
end
local function settle(ok, ...)
  if not ok and is_doomed() then error((...), 0) end
  return ok, ...
end
function pcall(...) return settle(raw_pcall(...)) end
-- Lua calls the handler of an error in a hook without hooks, where nothing could end it.
local function guard(handler)
  return function(...)
    if is_doomed() then return ... end
    return handler(...)
  end
end
function xpcall(f, handler, ...)
  return settle(raw_xpcall(f, type(handler) == "function" and guard(handler) or handler, ...))
end

-- A binary chunk could do anything, so only text is loaded. The compiler cannot be suspended, so
-- the text is bounded.
local SOURCE_MAX = 1 << 20
function load(chunk, name, _, ...)
  if type(chunk) == "function" then
    local pieces, size = {}, 0
    repeat
      local ok, piece = pcall(chunk)
      if not ok then return nil, piece end
      if piece ~= nil and type(piece) ~= "string" then return nil, "reader function must return a string" end
      pieces[#pieces + 1] = piece
      size = size + #(piece or "")
    until piece == nil or piece == "" or size > SOURCE_MAX
    chunk, name = concat(pieces), name or "=(load)"
  end
  if type(chunk) == "string" and #chunk > SOURCE_MAX then
    return nil, "a chunk of more than " .. SOURCE_MAX .. " bytes"
  end
  pause(type(chunk) == "string" and #chunk // 8 or 0)
  return raw_load(chunk, name, "t", ...)
end

-- Performs an operation that a step serves. Where the process cannot be suspended, output goes to
-- the native function, which does not wait.
local function ask(operation, ...)
  if (operation == "print" or operation == "log") and not can_yield() then return native(operation, ...) end
  return yield(operation, ...)
end

-- Inside of a coroutine of the program, an operation for the runtime is passed on by the code that
-- resumed the coroutine.
local GIVEN = {}
local function pass(co, ok, tag, ...)
  if not ok then
    if is_doomed() then error(tag, 0) end
    return false, tag
  end
  if status(co) == "dead" then return true, tag, ... end
  if tag == GIVEN then return true, ... end
  -- The coroutine should pause, but the code around it cannot.
  if tag == nil and not can_yield() then
    pause(0)
    return pass(co, resume(co))
  end
  return pass(co, resume(co, ask(tag, ...)))
end
-- Each coroutine has a count of its own of the instructions that it may take until the hook looks.
local resumed = 0
local function count()
  resumed = resumed + 1
  if resumed == 64 then
    resumed = 0
    pause(6400)
  end
end
function coroutine.resume(co, ...)
  count()
  return pass(co, resume(co, ...))
end
local close = coroutine.close
function coroutine.close(co)
  count()
  return settle(close(co))
end
function coroutine.yield(...)
  return yield(GIVEN, ...)
end
local create = coroutine.create
local function rethrow(ok, cause, ...)
  if not ok then error(cause, 0) end
  return cause, ...
end
function coroutine.wrap(f)
  local co = create(f)
  return function(...)
    count()
    return rethrow(pass(co, resume(co, ...)))
  end
end

local function line(...)
  local parts = pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return concat(parts, "\t", 1, parts.n) .. "\n"
end
-- Appends a line to an output, and waits if there is no room. It must be a tail call, like check.
local function put(output, text)
  local ok, value = native(output, text, true)
  if ok and value == false then ok, value = ask(output, text) end
  return check(ok, value)
end
function print(...) return put("print", line(...)) end

---- process

process = {}
-- The program is loaded for the new process in the step of this one.
local function spawned(ok, value)
  if not ok then error(value, 2) end
  pause(1000)
  return value
end
function process.spawn(name, ...) return spawned(native("spawn", 0, name, ...)) end
function process.spawn_link(name, ...) return spawned(native("spawn", 1, name, ...)) end
-- A text is the cause of a refusal.
local function sent(ok, value)
  if not ok then error(value, 2) end
  if type(value) == "string" then return false, value end
  return value
end
function process.send(to, message) return sent(native("send", to, message)) end
function process.self() return check(native("self")) end
function process.register(name) return check(native("register", name)) end
function process.whereis(name) return check(native("whereis", name)) end
function process.exit(to, reason) return check(native("exit", to, reason or "shutdown")) end
function process.cancel(to) return check(native("cancel", to)) end
function process.reply(call, value) return sent(native("reply", call, value)) end
function process.receive(timeout) return check(yield("receive", timeout)) end
function process.call(to, request, timeout) return try(yield("call", to, request, timeout)) end
function process.link(to) return check(yield("link", to)) end
function process.unlink(to) return check(yield("unlink", to)) end
function process.monitor(to) return check(yield("monitor", to)) end
function process.trap_exits(traps) return check(yield("trap", traps ~= false)) end
function process.yield() return check(yield("yield")) end
function process.cancelled() return check(yield("cancelled")) end

---- time

time = {}
function time.now() return check(native("now")) end
function time.sleep(milliseconds) return check(yield("sleep", milliseconds)) end

---- json, log

json = {}
function json.encode(value) return check(native("encode", value)) end
function json.decode(text) return try(native("decode", text)) end

log = {}
for _, level in ipairs { "debug", "info", "warn", "error" } do
  log[level] = function(...)
    return put("log", level .. " " .. tostring(process.self()) .. " " .. line(...))
  end
end

---- command

command = {}
for name, number in pairs(command_numbers) do
  command[name] = function(value) return try(yield("command", number, value)) end
end

---- parts

-- Each part is called with its table, with the table of the methods of sockets, and with the
-- functions of this file that it needs.
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
  load_part(part)
  return next, part, nil
end
local function set_lazy(part, name)
  parts[part] = name
  return raw_setmetatable(part, lazy)
end
for _, name in ipairs { "fs", "os", "net", "http", "package" } do _G[name] = set_lazy({}, name) end
set_lazy(string, "string")
set_lazy(table, "table")
local net, package, socket = net, package, set_lazy({}, "net")
function load_part(part)
  local name = parts[part]
  local both = name == "net" and { net, socket } or { part }
  for _, loaded in ipairs(both) do
    parts[loaded] = nil
    raw_setmetatable(loaded, nil)
  end
  local ok, cause = native("part", name)
  if ok then
    ok, cause = raw_pcall(cause, both[1], socket, native, check, try, yield, pause, raw, set_lazy)
  end
  if ok then return end
  -- It may succeed another time, when there is more memory.
  for _, loaded in ipairs(both) do set_lazy(loaded, name) end
  error(cause, 0)
end

-- The part `package` defines it.
function require(name)
  if not raw.require then load_part(package) end
  return raw.require(name)
end

return socket
