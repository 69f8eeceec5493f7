-- The part `requests` of the library: the server's side of HTTP.
local requests = ...
local native, type = native, type
local messages = raw.messages
local concat, find, match, sub, format = table.concat, string.find, string.match, string.sub, string.format

local BODY_MAX = 1 << 20
local REASONS = { [200] = "OK", [201] = "Created", [204] = "No Content", [304] = "Not Modified", [400] = "Bad Request",
  [404] = "Not Found", [405] = "Method Not Allowed", [408] = "Request Timeout", [413] = "Content Too Large",
  [417] = "Expectation Failed", [431] = "Request Header Fields Too Large", [500] = "Internal Server Error",
  [501] = "Not Implemented", [505] = "HTTP Version Not Supported" }
-- Headers that follow from the answer.
local OWN = { connection = true, ["content-length"] = true, ["transfer-encoding"] = true }

local function now()
  local _, time = native("now")
  return time
end

-- Returns the text of an answer, and true if the connection stays open.
local function answered(answer, request)
  local status, body = answer.status or 200, answer.body or ""
  local lines = { format("HTTP/1.1 %d %s", status, REASONS[status] or "Status") }
  messages.append(lines, answer.headers, OWN)
  local keep = request.keep
  for name, value in pairs(answer.headers or {}) do
    if string.lower(name) == "connection" and messages.has(tostring(value), "close") then keep = false end
  end
  local has_body = status >= 200 and status ~= 204 and status ~= 304
  if has_body then lines[#lines + 1] = "Content-Length: " .. #body end
  if not keep then
    lines[#lines + 1] = "Connection: close"
  elseif request.version == "0" then
    lines[#lines + 1] = "Connection: keep-alive"
  end
  local text = concat(lines, "\r\n") .. "\r\n\r\n"
  if has_body and request.method ~= "HEAD" then text = text .. body end
  return text, keep
end

-- Returns the path and the host of the target of a request.
local function target_of(target, method)
  if sub(target, 1, 1) == "/" or target == "*" and method == "OPTIONS" then return target end
  local host, path = match(target, "^[Hh][Tt][Tt][Pp][Ss]?://([^/?#]+)([^#]*)$")
  if not host then return nil end
  if sub(path, 1, 1) ~= "/" then path = "/" .. path end
  return path, host
end

-- Reads the next request, whose first byte is there. Returns it, or nil and the status of a refusal.
local function read(reader, connection, timeout)
  local ends = now() + timeout
  local function left()
    local time = ends - now()
    return time > 0 and time or 0
  end
  -- After a cancel, a request that has arrived in part may be completed.
  local function next_line()
    local text, cause = reader.line(messages.LINE_MAX, left())
    if cause == "cancelled" then return reader.line(messages.LINE_MAX, left()) end
    return text, cause
  end
  local first, cause = next_line()
  -- Some clients send an empty line after a body.
  if first == "" then first, cause = next_line() end
  if not first then
    return nil, cause == "too long" and 400 or cause == "timeout" and 408 or nil
  end
  local method, target, major, version = match(first, "^(%S+) (%S+) HTTP/(%d)%.(%d)$")
  if not method or not find(method, messages.TOKEN) then return nil, 400 end
  if major ~= "1" then return nil, 505 end
  local headers, status = messages.headers(next_line)
  if not headers then return nil, status end
  local path, host = target_of(target, method)
  if not path then return nil, 400 end
  if not headers.host and version ~= "0" then return nil, 400 end
  headers.host = host or headers.host
  if headers.expect then
    if string.lower(headers.expect) ~= "100-continue" then return nil, 417 end
    local length = tonumber(headers["content-length"] or "0")
    if version ~= "0" and reader.buffered() == 0 and length and length <= BODY_MAX then
      if not connection:write("HTTP/1.1 100 Continue\r\n\r\n", left()) then return nil end
    end
  end
  ends = now() + timeout
  local body
  body, status = messages.body(reader, headers, BODY_MAX, left)
  if not body then return nil, status end
  local keep = not messages.has(headers.connection, "close")
  if version == "0" then keep = keep and messages.has(headers.connection, "keep-alive") end
  local query = find(path, "?", 1, true)
  return {
    method = method, path = query and sub(path, 1, query - 1) or path, query = query and sub(path, query + 1) or nil,
    headers = headers, body = body,
  }, { method = method, version = version, keep = keep }
end

-- Answers the next request, whose first byte is there. Returns true if the connection stays open.
function requests.serve(reader, connection, name, timeout)
  local request, about = read(reader, connection, timeout)
  if not request then
    if about then
      local text = answered({ status = about, body = REASONS[about] .. "\n" }, { keep = false })
      connection:write(text, timeout)
    end
    return false
  end
  local ok, text, keep = pcall(function()
    local answer = _G[name](request)
    return answered(type(answer) == "string" and { body = answer } or answer, about)
  end)
  if not ok then
    log.error("a request failed:", text)
    text, keep = answered({ status = 500, body = "Internal Server Error\n" }, about)
  end
  return connection:write(text, timeout) and keep
end
