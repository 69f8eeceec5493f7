-- The part `net` of the library: a server and a reader of connections.
local net = ...
local check, error, late, native, pairs, yield = check, error, late, native, pairs, yield
local lists, strings = check(native("open", "table")), check(native("open", "string"))
local find, sub, concat = strings.find, strings.sub, lists.concat
local CHUNK = 65536
-- The longest backlog, for a system that does not tell its length.
local BACKLOG = 4096

-- Serves until a cancel. Each connection has a process, which calls the global function `name` with
-- the connection and the other arguments. After a cancel the connections that wait already are
-- accepted, the listener is closed, these processes are cancelled, and the function returns once all
-- of them have ended. If the server ends in another way, they are cancelled, too.
function net.serve(listener, name, ...)
  local serving, count, draining, logged = {}, 0, false, {}
  -- Logs at most one line of a kind per second, because each try to get room may fail.
  local function log(level, what, cause)
    local _, now = native("now")
    if logged[what] and now - logged[what] < 1000 then return end
    logged[what] = now
    if not late.log then check(native("lazy", check(native("library", "log")))) end
    late.log(level, what, cause)
  end
  local function cancel_all()
    for pid in pairs(serving) do check(native("cancel", pid)) end
  end
  -- Only messages about the end of a process are expected. All others are dropped. They may come
  -- faster than this drops them.
  local function note(wait)
    local message, why, _, reports = check(yield("receive", wait))
    if reports == "down" and serving[message.down] then
      serving[message.down] = nil
      count = count - 1
    end
    draining = draining or why == "cancelled"
    return why ~= "timeout" and why ~= "cancelled"
  end
  -- The end of a process makes room for another one.
  local function wait_for_room()
    if draining then cancel_all() end
    note(100)
  end
  local function start(connection, ...)
    local ok, pid = native("spawn scoped", name, connection, ...)
    while not ok and count > 0 do
      log("warn", "a connection waits:", pid)
      wait_for_room()
      ok, pid = native("spawn scoped", name, connection, ...)
    end
    if ok then
      -- With this, the descriptor is freed when the process of the connection ends. Otherwise it
      -- would stay open until Lua collects the garbage of this process.
      connection:forget()
      check(yield("monitor child", pid))
      serving[pid] = true
      count = count + 1
    else
      log("error", "cannot serve a connection:", pid)
      connection:close()
    end
  end
  while true do
    local connection, cause = listener:accept()
    if connection then
      start(connection, ...)
    elseif cause == "cancelled" then
      break
    else
      -- A listener that the process has closed never accepts again.
      local ok, closed = native("address", listener)
      if not ok then error(closed, 2) end
      log("warn", "cannot accept:", cause)
      note(10)
    end
    for _ = 1, 1000 do
      if not note(0) then break end
    end
  end
  -- The system would reset the connections that wait.
  draining = true
  -- Clients that come from now on may come faster than these are served.
  local ok, backlog = native("backlog", listener)
  local left, tries = ok and (backlog or BACKLOG) or 0, 0
  while left > 0 do
    local ok, connection = yield("accept waiting", listener)
    if ok and connection then
      start(connection, ...)
      left, tries = left - 1, 0
    elseif not ok and count > 0 then
      wait_for_room()
    elseif not ok and tries < 100 then
      -- What waited for the process of a connection frees the socket shortly after its end.
      tries = tries + 1
      note(10)
    else
      break
    end
  end
  listener:close()
  cancel_all()
  while count > 0 do note(1000) end
end

-- Reads a connection by lines and by counts. Holds at most one line or count, and one read.
function net.reader(connection)
  -- The bytes that have been read and not been returned yet are those of `text` from `at` on.
  local text, at = "", 1
  local reader = {}
  local function now()
    local _, time = native("now")
    return time
  end
  -- Reads until `is_enough` of the next piece and of the bytes before it. Each byte is copied once.
  local function gather(timeout, is_enough)
    local ends = timeout and now() + timeout
    local pieces, count = { sub(text, at) }, #text - at + 1
    local found, cause
    repeat
      local left = ends and ends - now()
      local bytes
      bytes, cause = connection:read(CHUNK, left and (left > 0 and left or 0))
      if bytes then
        pieces[#pieces + 1] = bytes
        found = is_enough(bytes, count)
        count = count + #bytes
      end
    until found or not bytes
    text, at = concat(pieces), 1
    return found, cause or "closed"
  end
  local function take(count, kept)
    local found = sub(text, at, at + kept - 1)
    at = at + count
    if at > #text then text, at = "", 1 end
    return found
  end
  -- Returns the text up to the next "\n", without that and a "\r" before it.
  function reader.line(most, timeout)
    most = most or CHUNK
    local stop = find(text, "\n", at, true)
    local count = stop and stop - at + 1
    if not count and #text - at + 1 <= most then
      local cause
      count, cause = gather(timeout, function(bytes, before)
        local offset = find(bytes, "\n", 1, true)
        return offset and before + offset or before + #bytes > most and most + 1
      end)
      if not count then return nil, cause end
    end
    if not count or count > most then return nil, "too long" end
    local end_of = sub(text, at + count - 2, at + count - 2) == "\r" and count > 1 and 2 or 1
    return take(count, count - end_of)
  end
  function reader.lines(most, timeout)
    return function() return (reader.line(most, timeout)) end
  end
  function reader.exactly(count, timeout)
    if reader.buffered() < count then
      local enough, cause = gather(timeout, function(bytes, before) return before + #bytes >= count end)
      if not enough then return nil, cause end
    end
    return take(count, count)
  end
  -- Waits until a byte is buffered.
  function reader.wait(timeout)
    if reader.buffered() > 0 then return true end
    local there, cause = gather(timeout, function() return true end)
    if not there then return nil, cause end
    return true
  end
  -- Returns the number of bytes that have been read and not been returned yet.
  function reader.buffered() return #text - at + 1 end
  return reader
end
