-- The library of programs. It is built on the operations of library.rs (`native`) and on those that
-- a step serves (`yield`). Each process holds the code that it has run, so parts that few processes
-- need are in files of their own. Such a file runs when its part is first used.
local native, command_numbers, pids = ...

setmetatable(pids, { __mode = "v" })
local yield, resume, status = coroutine.yield, coroutine.resume, coroutine.status
local can_yield = coroutine.isyieldable
local raw_pcall, raw_xpcall, raw_load = pcall, xpcall, load
local error, select, type, tostring, setmetatable, getmetatable = error, select, type, tostring, setmetatable, getmetatable
local pack, unpack, concat = table.pack, table.unpack, table.concat
local insert, remove, move, sort = table.insert, table.remove, table.move, table.sort
local find, sub, format = string.find, string.sub, string.format

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

for _, name in ipairs { "dofile", "loadfile", "require", "package", "io", "os", "debug", "warn", "collectgarbage" } do
  _G[name] = nil
end
string.dump = nil

-- A finalizer would run where it cannot be interrupted.
local raw_setmetatable = setmetatable
function setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  return raw_setmetatable(value, metatable)
end

-- These functions are loops in C. A table can claim any length, so they could run forever.
local LENGTH_MAX = 1 << 24
local function bounded(list)
  if type(list) == "table" and getmetatable(list) ~= nil and #list > LENGTH_MAX then
    error("a table of more than " .. LENGTH_MAX .. " entries", 3)
  end
end
-- The same holds for an empty string, repeated any number of times.
local rep = string.rep
function string.rep(text, count, separator)
  if text == "" and (separator or "") == "" then return "" end
  return rep(text, count, separator)
end
function table.insert(list, ...) bounded(list) return insert(list, ...) end
function table.remove(list, ...) bounded(list) return remove(list, ...) end
function table.sort(list, less) bounded(list) return sort(list, less) end
function table.concat(list, separator, from, to)
  bounded(list)
  if from and to and to - from > LENGTH_MAX then error("a range of more than " .. LENGTH_MAX .. " entries", 2) end
  return concat(list, separator, from, to)
end
function table.move(from, first, last, ...)
  if last - first > LENGTH_MAX then error("a range of more than " .. LENGTH_MAX .. " entries", 2) end
  return move(from, first, last, ...)
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

-- A binary chunk could do anything, so only text is loaded. The compiler cannot be suspended, so the
-- text is bounded, and the process yields after each LOAD_STEP bytes.
local LOAD_MAX, LOAD_STEP = 1 << 20, 1 << 14
local compiled = 0
function load(chunk, name, _, ...)
  if type(chunk) == "function" then
    local pieces, size = {}, 0
    repeat
      local ok, piece = pcall(chunk)
      if not ok then return nil, piece end
      if piece ~= nil and type(piece) ~= "string" then return nil, "reader function must return a string" end
      pieces[#pieces + 1] = piece
      size = size + #(piece or "")
    until piece == nil or piece == "" or size > LOAD_MAX
    chunk, name = concat(pieces), name or "=(load)"
  end
  if type(chunk) == "string" then
    if #chunk > LOAD_MAX then return nil, "a chunk of more than " .. LOAD_MAX .. " bytes" end
    compiled = compiled + #chunk
    if compiled > LOAD_STEP then
      compiled = 0
      if can_yield() then
        yield()
      else
        local ok, cause = native("overrun")
        if not ok then error(cause, 0) end
      end
    end
  end
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
  return pass(co, resume(co, ask(tag, ...)))
end
function coroutine.resume(co, ...) return pass(co, resume(co, ...)) end
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
  return function(...) return rethrow(pass(co, resume(co, ...))) end
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
function process.spawn(name, ...) return check(native("spawn", 0, name, ...)) end
function process.spawn_link(name, ...) return check(native("spawn", 1, name, ...)) end
function process.send(to, message) return check(native("send", to, message)) end
function process.self() return check(native("self")) end
function process.register(name) return check(native("register", name)) end
function process.whereis(name) return check(native("whereis", name)) end
function process.exit(to, reason) return check(native("exit", to, reason or "shutdown")) end
function process.cancel(to) return check(native("cancel", to)) end
function process.reply(call, value) return check(native("reply", call, value)) end
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
function lazy.__pairs(part)
  load_part(part)
  return next, part, nil
end
for _, name in ipairs { "fs", "net", "http" } do
  _G[name] = raw_setmetatable({}, lazy)
  parts[_G[name]] = name
end
local socket = raw_setmetatable({}, lazy)
parts[socket] = "net"
local net = net
function load_part(part)
  local name = parts[part]
  if name == "net" then
    parts[net], parts[socket] = nil, nil
    raw_setmetatable(net, nil)
    raw_setmetatable(socket, nil)
    part = net
  else
    parts[part] = nil
    raw_setmetatable(part, nil)
  end
  check(native("part", name))(part, socket, native, check, try, yield)
end

return socket
