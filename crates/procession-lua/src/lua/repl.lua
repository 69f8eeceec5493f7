-- The process of `Program::repl`. It evaluates lines, which the host reads.
local read = command["repl read"]
local DEPTH_MAX, ENTRIES_MAX = 4, 50
-- The longest text that is printed, which is more than a screen shows.
local TEXT_MAX = 1 << 16
-- A line may replace the globals and the metatable of strings. The functions of the library are taken
-- at the beginning of this process, since others of the program do not need them.
local ipairs, load, next, pcall, print, tostring, type = ipairs, load, next, pcall, print, tostring, type
local concat, find, format, pack, sort, sub

local function cut(text)
  return #text > TEXT_MAX and sub(text, 1, TEXT_MAX) .. "..." or text
end
local function show(value, depth)
  if type(value) == "string" then return depth == 0 and cut(value) or format("%q", cut(value)) end
  if type(value) ~= "table" or depth == DEPTH_MAX then return cut(tostring(value)) end
  local parts, keys = {}, {}
  for key in next, value do keys[#keys + 1] = key end
  sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
    return type(a) < type(b)
  end)
  for i, key in ipairs(keys) do
    if i > ENTRIES_MAX then
      parts[#parts + 1] = "..."
      break
    end
    local shown = show(value[key], depth + 1)
    if key == i then
      parts[i] = shown
    elseif type(key) == "string" and find(key, "^[%a_][%w_]*$") then
      parts[#parts + 1] = key .. " = " .. shown
    else
      parts[#parts + 1] = "[" .. show(key, depth + 1) .. "] = " .. shown
    end
  end
  return #parts == 0 and "{}" or "{ " .. concat(parts, ", ") .. " }"
end

local function report(ok, ...)
  local values = pack(...)
  if not ok then
    print("error: " .. cut(tostring(values[1])))
  elseif values.n > 0 then
    for i = 1, values.n do values[i] = show(values[i], 0) end
    print(concat(values, "\t"))
  end
end

-- Evaluates a text. Returns the text if it is not complete yet.
local function evaluate(text)
  local chunk, cause = load("return " .. text, "=repl")
  if not chunk then chunk, cause = load(text, "=repl") end
  if chunk then
    -- The text of a value may be the work of the program, or take too much memory.
    if not pcall(report, pcall(chunk)) then print("error: it cannot be shown") end
  elseif find(cause, "<eof>", 1, true) then
    return text
  else
    print("error: " .. cause)
  end
end
local function continue(text, more) return evaluate(text and text .. "\n" .. more or more) end

_G["procession repl"] = function()
  find, format, sub = string.find, string.format, string.sub
  concat, pack, sort = table.concat, table.pack, table.sort
  local text
  while true do
    local more = read(text ~= nil)
    if not more then return end
    -- Without memory, or if the program has broken the metatable of strings, not even an error can
    -- be printed.
    local ok, rest = pcall(continue, text, more)
    text = ok and rest or nil
  end
end
