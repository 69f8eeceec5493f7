-- The part `client` of the library: requests to HTTP servers.
local http = ...
local native, type, error = native, type, error
local messages = raw.messages
local find, match, sub = string.find, string.match, string.sub

local BODY_MAX = 1 << 24
local OWN = { connection = true, ["content-length"] = true, host = true, ["transfer-encoding"] = true }

-- Returns the address of a URL, its host as in the header, and its target.
local function parts_of(url)
  if find(url, "^[Hh][Tt][Tt][Pp][Ss]:") then return nil, "https is not supported" end
  local host, target = match(url, "^[Hh][Tt][Tt][Pp]://([^/?#]+)([^#]*)")
  if not host or find(url, "[%s%c]") or find(host, "@", 1, true) then return nil, "the URL is not valid" end
  if sub(target, 1, 1) ~= "/" then target = "/" .. target end
  return find(host, ":%d+$") and host or host .. ":80", host, target
end

-- Reads a body up to the end of the connection.
local function rest(reader, most, left)
  local pieces, size = {}, reader.buffered()
  if size > 0 then pieces[1] = reader.exactly(size) end
  while size <= most do
    local there, cause = reader.wait(left())
    if not there then
      if cause ~= "closed" then return nil, cause end
      return table.concat(pieces)
    end
    local count = reader.buffered()
    pieces[#pieces + 1] = reader.exactly(count)
    size = size + count
  end
  return nil, 413
end

local function response(reader, method, most, left)
  local function next_line() return reader.line(messages.LINE_MAX, left()) end
  local status, headers, cause
  repeat
    local first
    first, cause = next_line()
    if not first then return nil, cause end
    status = tonumber(match(first, "^HTTP/1%.%d (%d%d%d)"))
    if not status then return nil, "the answer is not HTTP" end
    headers, cause = messages.headers(next_line)
    if not headers then return nil, cause end
  until status >= 200
  local body = ""
  if method ~= "HEAD" and status ~= 204 and status ~= 304 then
    if headers["content-length"] or headers["transfer-encoding"] then
      body, cause = messages.body(reader, headers, most, left)
    else
      body, cause = rest(reader, most, left)
    end
    if not body then return nil, cause end
  end
  return { status = status, headers = headers, body = body }
end

local CAUSES = { [408] = "timeout", [413] = "the body is too long", [431] = "the headers are too long" }

function http.request(asked)
  if type(asked) == "string" then asked = { url = asked } end
  if type(asked) ~= "table" or type(asked.url) ~= "string" then
    error("bad argument #1 to 'request' (a URL, or a table with a field url expected)", 2)
  end
  local method, body, timeout = asked.method or "GET", asked.body, asked.timeout or 30000
  if not find(method, messages.TOKEN) then error("the method is not a word: " .. tostring(method), 2) end
  local address, host, target = parts_of(asked.url)
  if not address then return nil, host end
  local lines = { method .. " " .. target .. " HTTP/1.1", "Host: " .. host, "Connection: close" }
  if body or method ~= "GET" and method ~= "HEAD" then lines[4] = "Content-Length: " .. #(body or "") end
  messages.append(lines, asked.headers, OWN)
  local _, start = native("now")
  local function left()
    local _, time = native("now")
    return start + timeout > time and start + timeout - time or 0
  end
  local connection, cause = net.connect(address, timeout)
  if not connection then return nil, cause end
  local text = table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or "")
  local written, found = connection:write(text, left())
  if written then
    found, cause = response(net.reader(connection), method, asked.body_max or BODY_MAX, left)
  else
    found, cause = nil, found
  end
  connection:close()
  if found then return found end
  return nil, CAUSES[cause] or type(cause) == "number" and "the answer is not HTTP" or cause
end
function http.get(url, timeout) return http.request { url = url, timeout = timeout } end
function http.post(url, body, timeout) return http.request { url = url, method = "POST", body = body, timeout = timeout } end
