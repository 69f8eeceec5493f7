-- The part `http` of the library: a server. An idle connection has only this part.
local http = ...
local error, type, tostring = error, type, tostring
raw.messages = set_lazy({}, "messages")
local requests = set_lazy({}, "requests")

-- Waits for the first byte of the next request. After a cancel, takes only what has arrived.
local function is_there(reader, timeout)
  while true do
    local is_last = process.cancelled() and reader.buffered() == 0
    local there, cause = reader.wait(is_last and 0 or timeout)
    if there or cause ~= "cancelled" then return there end
  end
end

-- The entry point of the process of a connection.
http["serve connection"] = function(connection, name, timeout)
  local reader = net.reader(connection)
  while is_there(reader, timeout) and requests.serve(reader, connection, name, timeout) do end
  connection:close()
end

-- Serves until a cancel. Each connection has a process, which answers its requests with the global
-- function `name`.
function http.serve(listener, name, timeout)
  if type(_G[name]) ~= "function" then error("there is no function " .. tostring(name), 2) end
  return net.serve(listener, "http.serve connection", name, timeout or 30000)
end

set_lazy(http, "client")
