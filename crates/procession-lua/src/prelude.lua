-- The library of programs, upon the functions of library.rs (`native`) and what a step serves (`yield`).
local native, command_numbers, pids = ...

setmetatable(pids, { __mode = "v" })
local yield, resume, status = coroutine.yield, coroutine.resume, coroutine.status
local raw_pcall, raw_xpcall, raw_load = pcall, xpcall, load
local error, select, type, tostring, setmetatable, getmetatable = error, select, type, tostring, setmetatable, getmetatable
local pack, unpack, concat = table.pack, table.unpack, table.concat
local insert, remove, move, sort = table.insert, table.remove, table.move, table.sort
local find, sub, format = string.find, string.sub, string.format

-- Raises what a native function or a step refused, where the program called it.
local function check(ok, value, ...)
  if not ok then error(value, 3) end
  return value, ...
end

-- As check, for what the world refuses: that is a result.
local function try(ok, value)
  if not ok then return nil, value end
  return value
end

---- What Lua has, made safe.

for _, name in ipairs { "dofile", "loadfile", "require", "package", "io", "os", "debug", "warn", "collectgarbage" } do
  _G[name] = nil
end
string.dump = nil

-- Binary chunks could do anything.
function load(chunk, name, _, ...)
  return raw_load(chunk, name, "t", ...)
end

-- A finalizer runs where nothing could interrupt it.
local raw_setmetatable = setmetatable
function setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  return raw_setmetatable(value, metatable)
end

-- C loops that could go on for ever, since a table may say how long it is.
local LENGTH_MAX = 1 << 24
local function bounded(list)
  if type(list) == "table" and getmetatable(list) ~= nil and #list > LENGTH_MAX then
    error("a table of more than " .. LENGTH_MAX .. " entries", 3)
  end
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

-- A process that is to end for its budget cannot catch that.
local function settle(ok, cause, ...)
  if not ok and native.doomed() then error(cause, 0) end
  return ok, cause, ...
end
function pcall(...) return settle(raw_pcall(...)) end
function xpcall(...) return settle(raw_xpcall(...)) end

-- Inside of a coroutine of the program, what is meant for the runtime goes through who resumed it.
local GIVEN = {}
local function pass(co, ok, tag, ...)
  if not ok then
    if native.doomed() then error(tag, 0) end
    return false, tag
  end
  if status(co) == "dead" then return true, tag, ... end
  if tag == GIVEN then return true, ... end
  return pass(co, resume(co, yield(tag, ...)))
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
function print(...) check(native.print(line(...))) end

---- process

process = {}
function process.spawn(name, ...) return check(native.spawn(0, name, ...)) end
function process.spawn_link(name, ...) return check(native.spawn(1, name, ...)) end
function process.send(to, message) return check(native.send(to, message)) end
function process.self() return check(native.self()) end
function process.register(name) return check(native.register(name)) end
function process.whereis(name) return check(native.whereis(name)) end
function process.exit(to, reason) return check(native.exit(to, reason or "shutdown")) end
function process.reply(call, value) return check(native.reply(call, value)) end
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
function time.now() return check(native.now()) end
function time.sleep(milliseconds) return check(yield("sleep", milliseconds)) end

---- json, log

json = {}
function json.encode(value) return check(native.encode(value)) end
function json.decode(text) return try(native.decode(text)) end

log = {}
for _, level in ipairs { "debug", "info", "warn", "error" } do
  log[level] = function(...)
    check(native.log(level .. " " .. tostring(process.self()) .. " " .. line(...)))
  end
end

---- fs

fs = {}
function fs.read(path, from, count) return try(yield("fs.read", path, from or 0, count or -1)) end
function fs.size(path) return try(yield("fs.size", path)) end

local CHUNK = 65536
function fs.lines(path)
  local at, rest, ended = 0, "", false
  return function()
    while true do
      local stop = find(rest, "\n", 1, true)
      if stop then
        local found = sub(rest, 1, stop - 1)
        rest = sub(rest, stop + 1)
        return found
      end
      if ended then
        if rest == "" then return nil end
        local found = rest
        rest = ""
        return found
      end
      local more, cause = fs.read(path, at, CHUNK)
      if not more then error(cause, 2) end
      at, rest, ended = at + #more, rest .. more, #more < CHUNK
    end
  end
end

---- net

net = {}
function net.connect(address, timeout) return try(yield("connect", address, timeout)) end
function net.listen(address) return try(yield("listen", address)) end

local socket = {}
function socket:read(most, timeout)
  local ok, bytes = yield("read", self, most or CHUNK, timeout)
  if not ok then return nil, bytes end
  return bytes
end
function socket:write(bytes, timeout) return try(yield("write", self, bytes, timeout)) end
function socket:accept() return try(yield("accept", self)) end
function socket:close() return check(native.close(self)) end
function socket:forget() return check(native.forget(self)) end
function socket:address() return check(native.address(self)) end

-- Serves until a cancel: each connection has a process, which calls the global function `name` with it and the rest. Then it accepts no more, and
-- returns once all of these have ended.
function net.serve(listener, name, ...)
  local serving, count = {}, 0
  -- Messages are those that tell of an end; others have no place here.
  local function note(wait)
    local message, why = process.receive(wait)
    if type(message) == "table" and serving[message.down] then
      serving[message.down] = nil
      count = count - 1
    end
    return why ~= "timeout" and why ~= "cancelled"
  end
  while true do
    local connection, cause = listener:accept()
    if connection then
      local ok, pid = native.spawn(0, name, connection, ...)
      if ok then
        -- Its descriptor is to be free when the process has ended, and not when this one's garbage is collected.
        connection:forget()
        process.monitor(pid)
        serving[pid] = true
        count = count + 1
      else
        log.error("cannot serve a connection:", pid)
        connection:close()
      end
    elseif cause == "cancelled" then
      break
    else
      log.warn("cannot accept:", cause)
      time.sleep(10)
    end
    repeat until not note(0)
  end
  while count > 0 do note(1000) end
end

-- Reads a connection by lines and by counts. Never holds more than one line or count, and one read.
function net.reader(connection)
  local rest = ""
  local reader = {}
  local function more(timeout)
    local bytes, cause = connection:read(CHUNK, timeout)
    if not bytes then return nil, cause or "closed" end
    rest = rest .. bytes
    return true
  end
  -- Up to the next "\n", without it and a "\r" before it.
  function reader.line(most, timeout)
    most = most or CHUNK
    local from = 1
    while true do
      local stop = find(rest, "\n", from, true)
      if (stop or #rest) > most then return nil, "too long" end
      if stop then
        local found = sub(rest, 1, stop - 1)
        rest = sub(rest, stop + 1)
        if sub(found, -1) == "\r" then found = sub(found, 1, -2) end
        return found
      end
      from = #rest + 1
      local ok, cause = more(timeout)
      if not ok then return nil, cause end
    end
  end
  function reader.lines(most, timeout)
    return function() return (reader.line(most, timeout)) end
  end
  function reader.exactly(count, timeout)
    while #rest < count do
      local ok, cause = more(timeout)
      if not ok then return nil, cause end
    end
    local found = sub(rest, 1, count)
    rest = sub(rest, count + 1)
    return found
  end
  -- What has been read and not been given out.
  function reader.buffered() return #rest end
  return reader
end

---- http

http = {}
local HEADERS_MAX, BODY_MAX = 100, 1 << 20
local REASONS = { [200] = "OK", [201] = "Created", [204] = "No Content", [400] = "Bad Request", [404] = "Not Found",
  [405] = "Method Not Allowed", [413] = "Content Too Large", [431] = "Request Header Fields Too Large",
  [500] = "Internal Server Error", [501] = "Not Implemented" }

local function respond(connection, answer, keep, patience)
  local body = answer.body or ""
  local lines = { format("HTTP/1.1 %d %s", answer.status or 200, REASONS[answer.status or 200] or "Status") }
  for name, value in pairs(answer.headers or {}) do
    local text = tostring(name) .. ": " .. tostring(value)
    if find(text, "[\r\n]") then error("a header must be one line: " .. format("%q", text), 0) end
    lines[#lines + 1] = text
  end
  lines[#lines + 1] = "Content-Length: " .. #body
  if not keep then lines[#lines + 1] = "Connection: close" end
  return connection:write(concat(lines, "\r\n") .. "\r\n\r\n" .. body, patience)
end

-- The next request; or nil, and the status to refuse with, if one is due.
local function request(reader, patience)
  -- After a cancel, what has come is answered, and what has come in part may come to its end.
  local function next_line()
    local text, cause = reader.line(8192, patience)
    if cause == "cancelled" then return reader.line(8192, patience) end
    return text, cause
  end
  local first, cause = reader.line(8192, process.cancelled() and reader.buffered() == 0 and 0 or patience)
  if cause == "cancelled" and reader.buffered() > 0 then first, cause = reader.line(8192, patience) end
  if not first then
    if cause == "too long" then return nil, 400 end
    return nil
  end
  local method, path, version = string.match(first, "^(%u+) (%S+) HTTP/1%.([01])$")
  if not method then return nil, 400 end
  local headers, count = {}, 0
  while true do
    local text, cause = next_line()
    if not text then return nil, cause == "too long" and 431 or 400 end
    if text == "" then break end
    count = count + 1
    if count > HEADERS_MAX then return nil, 431 end
    local colon = find(text, ":", 1, true)
    if not colon or colon == 1 then return nil, 400 end
    local name = string.lower(sub(text, 1, colon - 1))
    if find(name, "%s") then return nil, 400 end
    if name == "content-length" and headers[name] then return nil, 400 end
    headers[name] = string.match(sub(text, colon + 1), "^%s*(.-)%s*$")
  end
  if headers["transfer-encoding"] then return nil, 501 end
  local body = ""
  if headers["content-length"] then
    local digits = string.match(headers["content-length"], "^%d+$")
    if not digits or #digits > 15 then return nil, 400 end
    local length = math.tointeger(digits)
    if length > BODY_MAX then return nil, 413 end
    body, cause = reader.exactly(length, patience)
    if cause == "cancelled" then body = reader.exactly(length, patience) end
    if not body then return nil, 400 end
  end
  local wish = string.lower(headers.connection or "")
  local keep = version == "1" and wish ~= "close" or wish == "keep-alive"
  local query = find(path, "?", 1, true)
  return {
    method = method, path = query and sub(path, 1, query - 1) or path, query = query and sub(path, query + 1) or nil,
    headers = headers, body = body,
  }, keep
end

-- The entry point of the process of a connection.
local function serve_connection(connection, name, patience)
  local reader = net.reader(connection)
  while true do
    local asked, keep = request(reader, patience)
    if not asked then
      if keep then respond(connection, { status = keep, body = REASONS[keep] .. "\n" }, false, patience) end
      break
    end
    local ok, answer = pcall(_G[name], asked)
    if not ok then
      log.error("a request failed:", answer)
      answer = { status = 500, body = "Internal Server Error\n" }
    elseif type(answer) == "string" then
      answer = { body = answer }
    end
    if not respond(connection, answer, keep, patience) or not keep then break end
  end
  connection:close()
end
http["serve connection"] = serve_connection

-- Serves until a cancel: each connection has a process, in which the global function `name` answers its requests.
function http.serve(listener, name, patience)
  if type(_G[name]) ~= "function" then error("there is no function " .. tostring(name), 2) end
  return net.serve(listener, "http.serve connection", name, patience or 30000)
end

---- command

command = {}
for name, number in pairs(command_numbers) do
  command[name] = function(value) return try(yield("command", number, value)) end
end

return socket
