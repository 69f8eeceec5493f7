-- The part `http` of the library: a server. The messages are read and written in Rust.
local http = ...
local error, native, pcall, tostring, type, yield = error, native, raw.pcall, tostring, type, yield
local check, late, settle, globals = check, late, settle, globals

-- Waits for the first byte of the next request. After a cancel, takes only what has arrived.
local function is_there(connection, timeout)
  while true do
    local ok, there = yield("http.wait", connection, timeout)
    if ok or there ~= "cancelled" then return ok and there end
  end
end

-- Answers a request. Returns true if the connection stays open. From "http.next" to "http.answer", the
-- runtime watches the client, and ends this process if the client abandons the request.
local function answer(connection, name, timeout, request, about)
  local ok, found = settle(pcall(function() return globals[name](request) end))
  if ok then ok, found = yield("http.answer", connection, found, about, timeout) end
  if ok then return found end
  local failure = { status = 500, body = "Internal Server Error\n" }
  local _, open = yield("http.answer", connection, failure, about, timeout)
  if not late.log then check(native("lazy", check(native("library", "log")))) end
  -- The program can make the text of its error.
  local shown, text = settle(pcall(tostring, found))
  late.log("error", "a request failed:", shown and text or "its error has no text")
  return open
end

-- The entry point of the process of a connection.
http["serve connection"] = function(connection, name, timeout)
  while is_there(connection, timeout) do
    local ok, found = yield("http.next", connection, timeout)
    if not ok or not found then break end
    if type(found) == "number" then
      yield("http.refuse", connection, found, nil, timeout)
      yield("http.end", connection)
      break
    end
    if not answer(connection, name, timeout, found[1], found[2]) then
      yield("http.end", connection)
      break
    end
  end
  native("close", connection)
end

-- Serves until a cancel. Each connection has a process, which answers its requests with the global
-- function `name`.
function http.serve(listener, name, timeout)
  if type(globals[name]) ~= "function" then error("there is no function " .. tostring(name), 2) end
  local net = check(native("part", {}, "net"))
  return net.serve(listener, "http.serve connection", name, timeout or 30000)
end
