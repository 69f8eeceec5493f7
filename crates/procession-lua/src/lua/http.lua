-- The part `http` of the library: a server.
local http = ...
local concat, find, sub, format = table.concat, string.find, string.sub, string.format

local HEADERS_MAX, BODY_MAX = 100, 1 << 20
local REASONS = { [200] = "OK", [201] = "Created", [204] = "No Content", [400] = "Bad Request", [404] = "Not Found",
  [405] = "Method Not Allowed", [413] = "Content Too Large", [431] = "Request Header Fields Too Large",
  [500] = "Internal Server Error", [501] = "Not Implemented" }

local function respond(connection, answer, keep, timeout)
  local body = answer.body or ""
  local lines = { format("HTTP/1.1 %d %s", answer.status or 200, REASONS[answer.status or 200] or "Status") }
  for name, value in pairs(answer.headers or {}) do
    local text = tostring(name) .. ": " .. tostring(value)
    if find(text, "[\r\n]") then error("a header must be one line: " .. format("%q", text), 0) end
    lines[#lines + 1] = text
  end
  lines[#lines + 1] = "Content-Length: " .. #body
  if not keep then lines[#lines + 1] = "Connection: close" end
  return connection:write(concat(lines, "\r\n") .. "\r\n\r\n" .. body, timeout)
end

-- Returns the next request. If there is none, returns nil and, if the client should get a refusal,
-- its status.
local function request(reader, timeout)
  -- After a cancel, requests that have arrived are answered, and a request that has arrived in part
  -- may be completed.
  local function next_line()
    local text, cause = reader.line(8192, timeout)
    if cause == "cancelled" then return reader.line(8192, timeout) end
    return text, cause
  end
  local first, cause
  repeat
    local is_last = process.cancelled() and reader.buffered() == 0
    first, cause = reader.line(8192, is_last and 0 or timeout)
    local is_put_off = cause == "cancelled" or is_last and cause == "timeout"
  until not is_put_off or reader.buffered() == 0
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
    body, cause = reader.exactly(length, timeout)
    if cause == "cancelled" then body = reader.exactly(length, timeout) end
    if not body then return nil, 400 end
  end
  local option = string.lower(headers.connection or "")
  local keep = version == "1" and option ~= "close" or option == "keep-alive"
  local query = find(path, "?", 1, true)
  return {
    method = method, path = query and sub(path, 1, query - 1) or path, query = query and sub(path, query + 1) or nil,
    headers = headers, body = body,
  }, keep
end

-- The entry point of the process of a connection.
local function serve_connection(connection, name, timeout)
  local reader = net.reader(connection)
  while true do
    local asked, keep = request(reader, timeout)
    if not asked then
      if keep then respond(connection, { status = keep, body = REASONS[keep] .. "\n" }, false, timeout) end
      break
    end
    local ok, answer = pcall(_G[name], asked)
    if not ok then
      log.error("a request failed:", answer)
      answer = { status = 500, body = "Internal Server Error\n" }
    elseif type(answer) == "string" then
      answer = { body = answer }
    end
    if not respond(connection, answer, keep, timeout) or not keep then break end
  end
  connection:close()
end
http["serve connection"] = serve_connection

-- Serves until a cancel. Each connection has a process, which answers its requests with the global
-- function `name`.
function http.serve(listener, name, timeout)
  if type(_G[name]) ~= "function" then error("there is no function " .. tostring(name), 2) end
  return net.serve(listener, "http.serve connection", name, timeout or 30000)
end

