-- The part `patterns` of the library: functions of Lua that match patterns, for long texts,
-- patterns with many repetitions, and replacements by functions. They count their work, and can be
-- suspended.
local patterns = ...
local native, pause = native, pause
local lists = check(native("open", "table"))
local strings = check(native("open", "string"))
local find, concat, unpack, sub = strings.find, lists.concat, lists.unpack, strings.sub
local error, tostring, type = error, tostring, type
local tointeger = check(native("open", "math")).tointeger

local function text(value, number, name, level)
  if type(value) == "string" then return value end
  if type(value) == "number" then return tostring(value) end
  local kind = value == nil and "no value" or type(value)
  error("bad argument #" .. number .. " to '" .. name .. "' (string expected, got " .. kind .. ")", level or 3)
end

-- Returns the offset at which a search begins, or nil if that is behind the end of the text.
local function offset(from, length)
  from = tointeger(from or 1) or error("bad argument #3 (number has no integer representation)", 3)
  if from < 0 then from = length + from + 1 end
  if from < 1 then from = 1 end
  if from <= length + 1 then return from - 1 end
end

-- Returns a table with the first and the last byte of the match, and its captures.
local function search(kind, string, pattern, from, last)
  while true do
    local ok, found = native("search", kind, string, pattern, from, last or -1)
    pause(200)
    if not ok then error(found, 3) end
    if type(found) ~= "number" then return found end
    from = found
  end
end

local function captures(found, string)
  if #found == 2 then return sub(string, found[1], found[2]) end
  for i = 3, #found do
    if not found[i] then error("unfinished capture", 3) end
  end
  return unpack(found, 3)
end

local function kind_of(pattern)
  if sub(pattern, 1, 1) == "^" then return "anchored", sub(pattern, 2) end
  return "pattern", pattern
end

function patterns.find(string, pattern, from, plain)
  string, pattern = text(string, 1, "find"), text(pattern, 2, "find")
  local start = offset(from, #string)
  if not start then return nil end
  local kind = "plain"
  if not plain then kind, pattern = kind_of(pattern) end
  local found = search(kind, string, pattern, start)
  if not found then return nil end
  if #found == 2 then return found[1], found[2] end
  return found[1], found[2], captures(found)
end

function patterns.match(string, pattern, from)
  string, pattern = text(string, 1, "match"), text(pattern, 2, "match")
  local start = offset(from, #string)
  if not start then return nil end
  local kind, rest = kind_of(pattern)
  local found = search(kind, string, rest, start)
  if found then return captures(found, string) end
  return nil
end

function patterns.gmatch(string, pattern, from)
  string, pattern = text(string, 1, "gmatch"), text(pattern, 2, "gmatch")
  local at, last = offset(from, #string) or #string + 1, nil
  return function()
    if at > #string then return nil end
    local found = search("pattern", string, pattern, at, last)
    if not found then
      at = #string + 1
      return nil
    end
    at, last = found[2], found[2]
    return captures(found, string)
  end
end

-- Returns the function that makes the replacement of a match.
local function replacer(replacement)
  local kind = type(replacement)
  if kind == "function" then
    return function(found, string) return replacement(captures(found, string)) end
  elseif kind == "table" then
    return function(found, string)
      local key = found[3]
      if key == nil then key = sub(string, found[1], found[2]) end
      if not key then error("unfinished capture", 3) end
      return replacement[key]
    end
  elseif kind ~= "string" and kind ~= "number" then
    local got = replacement == nil and "no value" or kind
    error("bad argument #3 to 'gsub' (string/function/table expected, got " .. got .. ")", 3)
  end
  replacement = tostring(replacement)
  if not find(replacement, "%", 1, true) then return function() return replacement end end
  local pieces, at = {}, 1
  while true do
    local percent = find(replacement, "%", at, true)
    pieces[#pieces + 1] = sub(replacement, at, (percent or 0) - 1)
    if not percent then break end
    local after = sub(replacement, percent + 1, percent + 1)
    if after == "%" then
      pieces[#pieces + 1] = "%"
    elseif find(after, "^%d$") then
      pieces[#pieces + 1] = tointeger(after)
    else
      error("invalid use of '%' in replacement string", 3)
    end
    at = percent + 2
  end
  return function(found, string)
    local parts = {}
    for i = 1, #pieces do
      local piece = pieces[i]
      if piece == 0 or piece == 1 and #found == 2 then
        piece = sub(string, found[1], found[2])
      elseif type(piece) == "number" then
        local captured = found[piece + 2]
        if captured == false then error("unfinished capture", 4) end
        piece = captured or error("invalid capture index %" .. piece .. " in replacement string", 4)
      end
      parts[i] = piece
    end
    return concat(parts)
  end
end

function patterns.gsub(string, pattern, replacement, most)
  string, pattern = text(string, 1, "gsub"), text(pattern, 2, "gsub")
  local replace = replacer(replacement)
  local kind, rest = kind_of(pattern)
  local parts, at, last, count = {}, 0, nil, 0
  if most == nil then most = #string + 1 end
  most = tointeger(most) or error("bad argument #4 to 'gsub' (integer expected, got " .. type(most) .. ")", 2)
  while count < most do
    local found = search(kind, string, rest, at, last)
    if not found then break end
    parts[#parts + 1] = sub(string, at + 1, found[1] - 1)
    local made = replace(found, string)
    if not made then
      made = sub(string, found[1], found[2])
    elseif type(made) ~= "string" and type(made) ~= "number" then
      error("invalid replacement value (a " .. type(made) .. ")", 2)
    end
    parts[#parts + 1] = made
    at, last, count = found[2], found[2], count + 1
    if kind == "anchored" then break end
  end
  parts[#parts + 1] = sub(string, at + 1)
  return concat(parts), count
end
