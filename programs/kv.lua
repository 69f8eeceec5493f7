-- A key-value server that speaks the protocol of Redis: PING, GET, SET (with EX), DEL, INCR. One
-- process owns the data, and each connection has its own process. Try it with `redis-cli -p PORT`.

local ARGUMENTS_MAX, VALUE_MAX, BUFFER_MAX = 64, 512 * 1024, 1024 * 1024
local BATCH_MAX = 1000
-- Maximum number of bytes of keys and values, and the bytes that Lua needs for a table entry. The
-- store stays below the memory limit of a process.
local STORE_MAX, ENTRY_COST = 32 * 1024 * 1024, 160
-- The maximum size of the answers to a batch. The rest is asked for again, so that a batch of large
-- values stays below the memory limit, too.
local ANSWERS_MAX = 1024 * 1024
-- Milliseconds in which the store must answer, and in which a client must take an answer.
local PATIENCE = 10000

---- The process that owns the data.

local values, expires, stored = {}, {}, 0

local function forget(key)
  if values[key] then
    stored = stored - #key - #values[key] - ENTRY_COST
    values[key], expires[key] = nil, nil
    return true
  end
  return false
end

local function look(key, now)
  if expires[key] and expires[key] <= now then forget(key) end
  return values[key]
end

local function keep(key, value)
  local before = values[key] and #key + #values[key] + ENTRY_COST or 0
  local after = stored - before + #key + #value + ENTRY_COST
  if after > STORE_MAX then return false end
  stored = after
  values[key] = value
  return true
end

local function bulk(value)
  if not value then return "$-1\r\n" end
  return "$" .. #value .. "\r\n" .. value .. "\r\n"
end

local FULL = "-OOM the store is full\r\n"
local commands = {}

commands.PING = { 1, 2, function(_, words) return words[2] and bulk(words[2]) or "+PONG\r\n" end }
commands.GET = { 2, 2, function(now, words) return bulk(look(words[2], now)) end }
commands.SET = { 3, 5, function(now, words)
  local seconds
  if #words > 3 then
    if #words ~= 5 or words[4]:upper() ~= "EX" then return "-ERR syntax error\r\n" end
    seconds = words[5]:find("^%d+$") and #words[5] <= 10 and math.tointeger(words[5])
    if not seconds or seconds == 0 then return "-ERR invalid expire time in 'set' command\r\n" end
  end
  if not keep(words[2], words[3]) then return FULL end
  expires[words[2]] = seconds and now + seconds * 1000 or nil
  return "+OK\r\n"
end }
commands.DEL = { 2, ARGUMENTS_MAX, function(now, words)
  local count = 0
  for i = 2, #words do
    if look(words[i], now) then
      forget(words[i])
      count = count + 1
    end
  end
  return ":" .. count .. "\r\n"
end }
commands.INCR = { 2, 2, function(now, words)
  local value = look(words[2], now) or "0"
  local number = value:find("^-?%d+$") and math.tointeger(value)
  if not number or number == math.maxinteger then
    return "-ERR value is not an integer or out of range\r\n"
  end
  if not keep(words[2], tostring(number + 1)) then return FULL end
  return ":" .. number + 1 .. "\r\n"
end }

local function execute(now, words)
  local command = commands[words[1]:upper()]
  if not command then return "-ERR unknown command\r\n" end
  if #words < command[1] or #words > command[2] then return "-ERR wrong number of arguments\r\n" end
  return command[3](now, words)
end

function store(owner)
  process.register("store")
  process.send(owner, "ready")
  -- It does not end at a cancel: the processes that call it must end first.
  process.monitor(owner)
  local swept = time.now()
  while true do
    local batch, call = process.receive(1000)
    local now = time.now()
    if batch and batch.down then
      return
    elseif batch then
      local answers, size = {}, 0
      for i, words in ipairs(batch) do
        answers[i] = execute(now, words)
        size = size + #answers[i]
        if size > ANSWERS_MAX then break end
      end
      process.reply(call, { count = #answers, text = table.concat(answers) })
    end
    if now - swept >= 1000 then
      swept = now
      local over = {}
      for key, when in pairs(expires) do
        if when <= now then over[#over + 1] = key end
      end
      for _, key in ipairs(over) do forget(key) end
    end
  end
end

---- The protocol.

-- Returns the words of the command at `at`, and the place where the next begins. Returns `nil` if
-- the command is not complete, and the cause if it never will be.
local function parse(buffer, at)
  local stop = buffer:find("\r\n", at, true)
  if not stop then
    if #buffer - at >= 65536 then return nil, "too big inline request" end
    return nil
  end
  local first = buffer:sub(at, stop - 1)
  at = stop + 2
  if first:sub(1, 1) ~= "*" then
    local words = {}
    for word in first:gmatch("%S+") do
      if #words == ARGUMENTS_MAX then return nil, "too many words" end
      words[#words + 1] = word
    end
    return words, at
  end
  local count = first:find("^%*%d+$") and #first <= 8 and math.tointeger(first:sub(2))
  if not count or count > ARGUMENTS_MAX then return nil, "invalid multibulk length" end
  local words = {}
  for i = 1, count do
    stop = buffer:find("\r\n", at, true)
    if not stop then
      if #buffer - at > 32 then return nil, "invalid bulk length" end
      return nil
    end
    local length = buffer:sub(at, stop - 1)
    if length:sub(1, 1) ~= "$" then return nil, "expected '$'" end
    length = length:find("^%$%d+$") and #length <= 8 and math.tointeger(length:sub(2))
    if not length or length > VALUE_MAX then return nil, "invalid bulk length" end
    at = stop + 2
    if #buffer < at + length + 1 then return nil end
    if buffer:sub(at + length, at + length + 1) ~= "\r\n" then return nil, "a bulk string without its end" end
    words[i] = buffer:sub(at, at + length - 1)
    at = at + length + 2
  end
  return words, at
end

function serve(connection)
  local buffer = ""
  while true do
    local bytes = connection:read()
    if not bytes then break end
    buffer = buffer .. bytes
    local at, wrong = 1, nil
    repeat
      local batch = {}
      while #batch < BATCH_MAX do
        local words, next_at = parse(buffer, at)
        if not words then
          wrong = next_at
          break
        end
        if #words > 0 then batch[#batch + 1] = words end
        at = next_at
      end
      local asked = #batch
      while #batch > 0 do
        local answers = process.call("store", batch, PATIENCE)
        if not answers or not connection:write(answers.text, PATIENCE) then return connection:close() end
        batch = table.move(batch, answers.count + 1, #batch, 1, {})
      end
    until asked < BATCH_MAX
    buffer = buffer:sub(at)
    if not wrong and #buffer > BUFFER_MAX then wrong = "too big a request" end
    if wrong then
      connection:write("-ERR Protocol error: " .. wrong .. "\r\n")
      break
    end
  end
  connection:close()
end

function main(address)
  process.spawn("store", process.self())
  -- Before a process calls it by its name.
  local begun, why = process.receive(PATIENCE)
  if not begun and why == "cancelled" then return end
  assert(begun == "ready", "the store does not begin")
  local listener = assert(net.listen(address or "127.0.0.1:6379"))
  print("listening at " .. listener:address())
  net.serve(listener, "serve")
end
