-- The part `client` of the library: requests to HTTP servers.
local http = ...
local native, type, error = native, type, error
local try, yield, tostring = try, yield, tostring
local strings = check(native("open", "string"))
local find, match, sub = strings.find, strings.match, strings.sub

local BODY_MAX = 1 << 24
local URL_MAX = 1 << 16

-- Returns the address of a URL, its host as in the header, its target, and the options of its socket.
local function parts_of(url)
  if #url > URL_MAX then return nil, "the URL has more than " .. URL_MAX .. " bytes" end
  local secure, host, target = match(url, "^[Hh][Tt][Tt][Pp]([Ss]?)://([^/?#]+)([^#]*)")
  if not host or find(url, "[%s%c]") or find(host, "@", 1, true) then return nil, "the URL is not valid" end
  if sub(target, 1, 1) ~= "/" then target = "/" .. target end
  local port, options = ":80", nil
  if secure ~= "" then port, options = ":443", { tls = { protocols = { "http/1.1" } } } end
  return find(host, ":%d+$") and host or host .. port, host, target, options
end

function http.request(asked)
  if type(asked) == "string" then asked = { url = asked } end
  if type(asked) ~= "table" or type(asked.url) ~= "string" then
    error("bad argument #1 to 'request' (a URL, or a table with a field url expected)", 2)
  end
  local timeout = asked.timeout or 30000
  local address, host, target, options = parts_of(asked.url)
  if not address then return nil, host end
  local message = {
    method = asked.method, host = host, target = target, headers = asked.headers, body = asked.body,
  }
  local _, start = native("now")
  local connection, cause = try(yield("connect", address, timeout, options))
  if not connection then return nil, cause end
  local _, time = native("now")
  local ok, found = yield("http.request", connection, message, asked.body_max or BODY_MAX, start + timeout - time)
  native("close", connection)
  -- A text is the cause why the request is not valid.
  if type(found) == "string" and ok then error(found, 2) end
  if not ok then return nil, found end
  return found
end
function http.get(url, timeout) return http.request { url = url, timeout = timeout } end
function http.post(url, body, timeout) return http.request { url = url, method = "POST", body = body, timeout = timeout } end
