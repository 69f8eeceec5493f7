-- The part `raw` of the globals of programs: functions that see only what a table itself has. To
-- them, a table of the library has all of its functions.
local check, getmetatable, lazy, native = check, getmetatable, lazy, native

local function fill(value)
  if getmetatable(value) == lazy then check(native("lazy", value)) end
end

local raw_next = next
function late.next(t, key)
  if key == nil then fill(t) end
  return raw_next(t, key)
end
for name, act in raw_next, { rawget = rawget, rawset = rawset } do
  late[name] = function(t, ...)
    fill(t)
    return act(t, ...)
  end
end
