-- The part `net` of the library: connections, listeners and their methods.
local net, socket = ...
local native, check, try, yield = native, check, try, yield
local find, sub = string.find, string.sub
local CHUNK = 65536

function net.connect(address, timeout) return try(yield("connect", address, timeout)) end
function net.listen(address) return try(yield("listen", address)) end

function net.udp(address) return try(yield("udp", address)) end
function socket:send_to(address, bytes, timeout) return try(yield("send to", self, address, bytes, timeout)) end
function socket:receive_from(timeout)
  local ok, found = yield("receive from", self, timeout)
  if not ok then return nil, found end
  return found[1], found[2]
end

function socket:read(most, timeout)
  local ok, bytes = yield("read", self, most or CHUNK, timeout)
  if not ok then return nil, bytes end
  return bytes
end
function socket:write(bytes, timeout) return try(yield("write", self, bytes, timeout)) end
function socket:accept() return try(yield("accept", self)) end
function socket:close() return check(native("close", self)) end
function socket:forget() return check(native("forget", self)) end
function socket:address() return check(native("address", self)) end

-- Serves until a cancel. Each connection has a process, which calls the global function `name` with
-- the connection and the other arguments. After a cancel the listener is closed, these processes are
-- cancelled, and the function returns once all of them have ended. If the server ends in another
-- way, they are cancelled, too.
function net.serve(listener, name, ...)
  local serving, count = {}, 0
  -- Only messages about the end of a process are expected. All others are dropped.
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
      local ok, pid = native("spawn", 2, name, connection, ...)
      if ok then
        -- With this, the descriptor is freed when the process of the connection ends. Otherwise it
        -- would stay open until Lua collects the garbage of this process.
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
  listener:close()
  for pid in pairs(serving) do process.cancel(pid) end
  while count > 0 do note(1000) end
end

-- Reads a connection by lines and by counts. Holds at most one line or count, and one read.
function net.reader(connection)
  local rest = ""
  local reader = {}
  local function more(timeout)
    local bytes, cause = connection:read(CHUNK, timeout)
    if not bytes then return nil, cause or "closed" end
    rest = rest .. bytes
    return true
  end
  -- Returns the text up to the next "\n", without that and a "\r" before it.
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
  -- Returns the number of bytes that have been read and not been returned yet.
  function reader.buffered() return #rest end
  return reader
end

