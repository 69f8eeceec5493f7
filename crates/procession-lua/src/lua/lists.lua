-- The part `table` of the library: those of its functions that are loops in C.
local table = ...
local insert, remove, concat, move, unpack = raw.insert, raw.remove, raw.concat, raw.move, raw.unpack
local error, getmetatable, type = error, getmetatable, type
local tables = set_lazy({}, "tables")

-- A table without a metatable bounds these loops by its size. For other tables, there are
-- replacements in Lua.
local LENGTH_MAX = 1 << 22
local function is_plain(list) return type(list) ~= "table" or getmetatable(list) == nil end
local function check_range(from, to)
  if type(from) == "number" and type(to) == "number" and to - from > LENGTH_MAX then
    error("a range of more than " .. LENGTH_MAX .. " entries", 3)
  end
end
function table.insert(list, ...)
  if is_plain(list) then return insert(list, ...) end
  return tables.insert(list, ...)
end
function table.remove(list, ...)
  if is_plain(list) then return remove(list, ...) end
  return tables.remove(list, ...)
end
function table.concat(list, separator, from, to)
  check_range(from, to)
  if is_plain(list) then return concat(list, separator, from, to) end
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
function table.sort(list, less) return tables.sort(list, less) end
