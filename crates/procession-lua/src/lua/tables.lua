-- The part `tables` of the library: functions of Lua that loop over tables, for tables with
-- metatables, and sorting. They can be suspended.
local tables = ...
local pause = pause
local math = check(native("open", "math"))
local lua = check(native("open", "table"))
local concat, unpack, sort = lua.concat, lua.unpack, lua.sort
local error, getmetatable, select, type, min = error, getmetatable, select, type, math.min
local LENGTH_MAX = 1 << 22

-- Texts have a metatable that the program can change, but they are no lists.
local function check_table(list, number, name)
  if type(list) ~= "table" then
    local kind = list == nil and "no value" or type(list)
    error("bad argument #" .. number .. " to '" .. name .. "' (table expected, got " .. kind .. ")", 3)
  end
end

local function length(list)
  local count = #list
  if math.type(count) ~= "integer" then error("object length is not an integer", 3) end
  if count > LENGTH_MAX then error("a table of more than " .. LENGTH_MAX .. " entries", 3) end
  return count
end

local function integer(value, number, name)
  local found = math.tointeger(value)
  if found then return found end
  local kind = value == nil and "no value" or type(value)
  error("bad argument #" .. number .. " to '" .. name .. "' (integer expected, got " .. kind .. ")", 3)
end

function tables.insert(list, ...)
  check_table(list, 1, "insert")
  local count = length(list) + 1
  local given = select("#", ...)
  if given == 1 then
    list[count] = ...
  elseif given == 2 then
    local at, value = ...
    at = integer(at, 2, "insert")
    if at < 1 or at > count then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
    for i = count, at + 1, -1 do list[i] = list[i - 1] end
    list[at] = value
  else
    error("wrong number of arguments to 'insert'", 2)
  end
end

function tables.remove(list, at)
  check_table(list, 1, "remove")
  local count = length(list)
  if at == nil then at = count else at = integer(at, 2, "remove") end
  if at ~= count and (at < 1 or at > count + 1) then
    error("bad argument #2 to 'remove' (position out of bounds)", 2)
  end
  local removed = list[at]
  for i = at, count - 1 do list[i] = list[i + 1] end
  if at < count then at = count end
  list[at] = nil
  return removed
end

local function copied(list, first, last)
  -- The difference may overflow.
  if last > first and (last - first > LENGTH_MAX or last - first < 0) then
    error("a range of more than " .. LENGTH_MAX .. " entries", 3)
  end
  local copy = {}
  for i = first, last do copy[i - first + 1] = list[i] end
  return copy, last - first + 1
end

local PIECE = 8192
-- Concatenates a table without a metatable, with a pause after each piece.
local function joined(list, separator, first, last)
  local pieces = {}
  while last - first >= PIECE do
    pieces[#pieces + 1] = concat(list, separator, first, first + PIECE - 1)
    first = first + PIECE
    pause(PIECE)
  end
  pieces[#pieces + 1] = concat(list, separator, first, last)
  return concat(pieces, separator)
end

function tables.concat(list, separator, first, last)
  check_table(list, 1, "concat")
  first, last = integer(first or 1, 3, "concat"), integer(last or length(list), 4, "concat")
  if first > last then return "" end
  if getmetatable(list) == nil then return joined(list, separator, first, last) end
  local copy, count = copied(list, first, last)
  for i = 1, count do
    local kind = type(copy[i])
    if kind ~= "string" and kind ~= "number" then
      error("invalid value (at index " .. first + i - 1 .. ") in table for 'concat'", 2)
    end
  end
  return joined(copy, separator, 1, count)
end

function tables.unpack(list, first, last)
  first, last = integer(first or 1, 2, "unpack"), integer(last or length(list), 3, "unpack")
  local copy, count = copied(list, first, last)
  return unpack(copy, 1, count)
end

function tables.move(from, first, last, at, to)
  check_table(from, 1, "move")
  check_table(to, 5, "move")
  first, last = integer(first, 2, "move"), integer(last, 3, "move")
  at = integer(at, 4, "move")
  if at > last or at <= first or from ~= to then
    for i = 0, last - first do to[at + i] = from[first + i] end
  else
    for i = last - first, 0, -1 do to[at + i] = from[first + i] end
  end
  return to
end

local RUN = 8
-- Returns the sorted entries of `from`, which it overwrites. It ends whatever `less` returns.
local function merge_sort(from, count, less)
  for low = 1, count, RUN do
    for i = low + 1, min(low + RUN - 1, count) do
      local value, j = from[i], i - 1
      while j >= low and less(value, from[j]) do
        from[j + 1] = from[j]
        j = j - 1
      end
      from[j + 1] = value
    end
  end
  local to, width = {}, RUN
  while width < count do
    for low = 1, count, 2 * width do
      local middle, high = min(low + width, count + 1), min(low + 2 * width, count + 1)
      local i, j = low, middle
      for k = low, high - 1 do
        if i < middle and (j >= high or not less(from[j], from[i])) then
          to[k] = from[i]
          i = i + 1
        else
          to[k] = from[j]
          j = j + 1
        end
      end
    end
    from, to = to, from
    width = 2 * width
  end
  return from
end

-- Returns true if Lua's own sort takes a bounded time.
local function is_light(list, count)
  if getmetatable(list) ~= nil or count > 65536 then return false end
  for i = 1, count do
    local value = list[i]
    if type(value) ~= "number" and (type(value) ~= "string" or #value > 64) then return false end
  end
  return true
end

function tables.sort(list, less)
  check_table(list, 1, "sort")
  local count = length(list)
  if less == nil and is_light(list, count) then
    sort(list)
    pause(count)
    return
  end
  if less ~= nil and type(less) ~= "function" then
    error("bad argument #2 to 'sort' (function expected, got " .. type(less) .. ")", 2)
  end
  local sorted = merge_sort(copied(list, 1, count), count, less or function(a, b) return a < b end)
  for i = 1, count do list[i] = sorted[i] end
end
