-- The part `log` of the library: lines of output.
local log = ...
local native, yield, check, can_yield, tostring = native, yield, check, can_yield, tostring
local lists = check(native("open", "table"))
local select, pack, concat = select, lists.pack, lists.concat

local function line(...)
  local pieces = pack(...)
  for i = 1, pieces.n do pieces[i] = tostring(pieces[i]) end
  return concat(pieces, "\t", 1, pieces.n) .. "\n"
end
-- Appends text to an output, and waits if there is no room. Where the process cannot be suspended,
-- it goes to the native function, which does not wait. It must be a tail call, like check.
function raw.put(output, text)
  local ok, value = native(output, text, true)
  if ok and value == false then
    if can_yield() then
      ok, value = yield(output, text)
    else
      ok, value = native(output, text)
    end
  end
  return check(ok, value)
end
local put = raw.put
function late.print(...) return put("print", line(...)) end

local function write(level, ...)
  return put("log", level .. " " .. tostring(select(2, native("self"))) .. " " .. line(...))
end
late.log = write
for _, level in ipairs { "debug", "info", "warn", "error" } do
  log[level] = function(...) return write(level, ...) end
end
