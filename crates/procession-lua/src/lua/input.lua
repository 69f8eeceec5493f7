-- The part `io` of the library: standard output without the ends of lines, and standard input.
local io = ...
local yield, error, select, tostring, type = yield, error, select, tostring, type
local lists, strings = check(native("open", "table")), check(native("open", "string"))
local concat, match, put = lists.concat, strings.match, raw.put
if not put then
  check(native("lazy", check(native("library", "log"))))
  put = raw.put
end

function io.write(...)
  local pieces = { ... }
  for i = 1, select("#", ...) do
    local kind = type(pieces[i])
    if kind ~= "string" and kind ~= "number" then
      error("bad argument #" .. i .. " to 'write' (string expected, got " .. kind .. ")", 2)
    end
    pieces[i] = tostring(pieces[i])
  end
  return put("print", concat(pieces))
end

-- A count of bytes, or the name of a format, which may begin with "*" as in older versions of Lua.
local FORMATS = { l = "line", L = "full line", a = "all" }
local function read(format)
  local ok, found
  if type(format) == "number" then
    ok, found = yield("input", "count", format)
  else
    local name = type(format) == "string" and FORMATS[match(format, "^%*?(%a)")]
    if not name then error("bad argument to 'read' (invalid format)", 3) end
    ok, found = yield("input", name)
  end
  if not ok then return nil, found end
  return found
end
function io.read(format) return read(format or "l") end
function io.lines()
  return function()
    local text, cause = read("l")
    if cause then error(cause, 2) end
    return text
  end
end
