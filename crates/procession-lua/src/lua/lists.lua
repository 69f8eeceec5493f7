-- The part `table` of the library. Most of its functions are loops in C.
local table = ...
local lua = check(native("open", "table"))
local insert, remove, concat, move, unpack = lua.insert, lua.remove, lua.concat, lua.move, lua.unpack
local error, getmetatable, select, tonumber, type = error, getmetatable, select, tonumber, type
local tables = check(native("part", {}, "tables"))

-- A table without a metatable bounds these loops by its size, unless its length claims more: a few
-- keys in the right places suffice for that. For other tables, there are replacements in Lua. These
-- refuse texts, whose metatable the program can change, and Lua's own functions refuse all else.
local LENGTH_MAX = 1 << 22
local function is_plain(list) return getmetatable(list) == nil end
local function is_short(list)
  return getmetatable(list) == nil and (type(list) ~= "table" or #list <= LENGTH_MAX)
end
-- Lua takes texts as bounds, too. The difference of integers may overflow.
local function check_range(from, to)
  from, to = tonumber(from), tonumber(to)
  if from and to and to > from and (to - from > LENGTH_MAX or to - from < 0) then
    error("a range of more than " .. LENGTH_MAX .. " entries", 3)
  end
end
-- The text of a number takes about 1 us, so a table is concatenated in pieces.
local function is_long(list, from, to)
  if type(list) ~= "table" then return false end
  from, to = tonumber(from or 1), tonumber(to or #list)
  return from and to and to - from > 8192
end
function table.insert(list, ...)
  if is_short(list) or is_plain(list) and select("#", ...) == 1 then return insert(list, ...) end
  return tables.insert(list, ...)
end
function table.remove(list, ...)
  if is_short(list) or is_plain(list) and select("#", ...) == 0 then return remove(list, ...) end
  return tables.remove(list, ...)
end
function table.concat(list, separator, from, to)
  check_range(from, to)
  if is_plain(list) and not is_long(list, from, to) then return concat(list, separator, from, to) end
  return tables.concat(list, separator, from, to)
end
function table.move(from, first, last, at, to)
  check_range(first, last)
  if is_plain(from) and is_plain(to) then return move(from, first, last, at, to or from) end
  return tables.move(from, first, last, at, to or from)
end
function table.unpack(list, first, last)
  if is_plain(list) then return unpack(list, first, last) end
  return tables.unpack(list, first, last)
end
table.pack = lua.pack
function table.sort(list, less) return tables.sort(list, less) end
