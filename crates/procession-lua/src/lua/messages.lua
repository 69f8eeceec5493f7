-- The part `messages` of the library: what the server and the client of HTTP have in common.
local messages = ...
local error, tostring, type = error, tostring, type
local find, gmatch, match = string.find, string.gmatch, string.match
local lower, sub, format = string.lower, string.sub, string.format

local LINE_MAX, HEADERS_MAX = 8192, 100
messages.LINE_MAX = LINE_MAX
local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$"
messages.TOKEN = TOKEN

-- Reads the lines of a head up to the empty one. Returns the headers, or nil and the status of a
-- refusal.
function messages.headers(next_line)
  local headers, count = {}, 0
  while true do
    local text, cause = next_line()
    if not text then return nil, cause == "too long" and 431 or cause == "timeout" and 408 or 400 end
    if text == "" then return headers end
    count = count + 1
    if count > HEADERS_MAX then return nil, 431 end
    local colon = find(text, ":", 1, true)
    local name = colon and lower(sub(text, 1, colon - 1))
    if not name or not find(name, TOKEN) then return nil, 400 end
    if headers[name] and (name == "content-length" or name == "host") then return nil, 400 end
    local value = match(sub(text, colon + 1), "^%s*(.-)%s*$")
    headers[name] = headers[name] and headers[name] .. ", " .. value or value
  end
end

-- Returns true if a header is a list that has a word.
function messages.has(list, word)
  for found in gmatch(lower(list or ""), "[^,%s]+") do
    if found == word then return true end
  end
  return false
end

-- Reads a body. Returns it, or nil and the status of a refusal.
function messages.body(reader, headers, most, left)
  local function read(act, count)
    local found, cause = act(count, left())
    if cause == "cancelled" then found, cause = act(count, left()) end
    return found, cause == "timeout" and 408 or 400
  end
  local coding, length = headers["transfer-encoding"], headers["content-length"]
  if not coding then
    if not length then return "" end
    if not find(length, "^%d+$") then return nil, 400 end
    if #length > 15 or tonumber(length) > most then return nil, 413 end
    return read(reader.exactly, tonumber(length))
  end
  if lower(coding) ~= "chunked" then return nil, 501 end
  -- With both, the two ends might see different requests.
  if length then return nil, 400 end
  local pieces, size = {}, 0
  while true do
    local line, status = read(reader.line, LINE_MAX)
    if not line then return nil, status end
    local digits = match(line, "^(%x+)%s*$") or match(line, "^(%x+)%s*;")
    if not digits then return nil, 400 end
    if #digits > 8 then return nil, 413 end
    local count = tonumber(digits, 16)
    size = size + count
    if size > most then return nil, 413 end
    if count == 0 then break end
    local piece
    piece, status = read(reader.exactly, count + 2)
    if not piece then return nil, status end
    if sub(piece, -2) ~= "\r\n" then return nil, 400 end
    pieces[#pieces + 1] = sub(piece, 1, -3)
  end
  local trailer, status = messages.headers(function() return reader.line(LINE_MAX, left()) end)
  if not trailer then return nil, status end
  return table.concat(pieces)
end

-- Appends headers to lines. Those in `own` are set by the library itself.
function messages.append(lines, headers, own)
  for name, value in pairs(headers or {}) do
    local text = tostring(name) .. ": " .. tostring(value)
    if type(name) ~= "string" or not find(name, TOKEN) or find(text, "[\r\n\0]") then
      error("a header must be one line: " .. format("%q", text), 0)
    end
    if not own[lower(name)] then lines[#lines + 1] = text end
  end
end
