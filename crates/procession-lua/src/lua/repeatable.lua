-- Makes runs of a program repeatable. Lua seeds its random numbers and the order of its tables from
-- addresses and the time. Here the numbers follow from the seed of the run and the number of the
-- process, and the keys of tables come sorted: numbers, strings, booleans, PIDs. Keys of other types
-- come last, in no certain order.
local seed, number, own = ...
local raw_next, type, tostring, getmetatable = next, type, tostring, getmetatable
local rawget, setmetatable, sort, raw_pairs = rawget, setmetatable, table.sort, pairs
local math_type, tointeger, error = math.type, math.tointeger, error
math.randomseed(seed, number)

local ORDER = { "number", "string", "boolean", "userdata" }
local function sorted_keys(t)
  local lists, rest = { number = {}, string = {}, boolean = {}, userdata = {} }, {}
  local texts = {}
  for key in raw_next, t do
    local list = lists[type(key)] or rest
    local value = key
    if list == lists.boolean or list == lists.userdata then
      value = tostring(key)
      texts[value] = key
    end
    list[#list + 1] = value
  end
  local keys, at = {}, {}
  for _, name in raw_next, ORDER do
    local list = lists[name]
    sort(list)
    for i = 1, #list do
      local key = list[i]
      if name == "boolean" or name == "userdata" then key = texts[key] end
      keys[#keys + 1] = key
    end
  end
  for i = 1, #rest do keys[#keys + 1] = rest[i] end
  for i = 1, #keys do at[keys[i]] = i end
  return { keys = keys, at = at }
end

-- The keys of the tables that are being traversed. A traversal begins with `nil`.
local traversed = setmetatable({}, { __mode = "k" })
function next(t, key)
  if type(t) ~= "table" then return raw_next(t, key) end
  local known = key ~= nil and traversed[t] or nil
  if not known then
    known = sorted_keys(t)
    traversed[t] = known
  end
  local i = 0
  if key ~= nil then
    if math_type(key) == "float" then key = tointeger(key) or key end
    i = known.at[key] or error("invalid key to 'next'", 2)
  end
  while true do
    i = i + 1
    local found = known.keys[i]
    if found == nil then return nil end
    local value = rawget(t, found)
    if value ~= nil then return found, value end
  end
end

function pairs(t)
  local metatable = getmetatable(t)
  if type(t) ~= "table" or type(metatable) == "table" and rawget(metatable, "__pairs") ~= nil then
    return raw_pairs(t)
  end
  local known, i = sorted_keys(t), 0
  return function()
    while true do
      i = i + 1
      local key = known.keys[i]
      if key == nil then return nil end
      local value = rawget(t, key)
      if value ~= nil then return key, value end
    end
  end, t, nil
end
own.pairs = pairs
