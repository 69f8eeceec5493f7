-- The part `string` of the library: those of its functions that match patterns or repeat.
local string = ...
local native, pause = native, pause
local lua = check(native("open", "string"))
local find, match, gmatch, gsub, rep = lua.find, lua.match, lua.gmatch, lua.gsub, lua.rep
local format, error, next, select, tonumber, type = lua.format, error, next, select, tonumber, type
local pack = check(native("open", "table")).pack
local patterns = check(native("part", {}, "patterns"))

-- Functions that handle each byte of a longer text count that as work.
local LONG = 1 << 16
for _, name in ipairs { "lower", "reverse", "upper" } do
  local change = lua[name]
  string[name] = function(text)
    if type(text) == "string" and #text > LONG then pause(#text // 8) end
    return change(text)
  end
end

-- Functions that handle each byte many times slower than a copy take only texts of some length.
local SLOW_MAX = 1 << 20
local function check_format(text, name)
  if type(text) == "string" and #text > SLOW_MAX then
    error("bad argument #1 to '" .. name .. "' (a format of more than " .. SLOW_MAX .. " bytes)", 3)
  end
end
-- Lua measures or reads a text each time that a format refers to it, also if it shows only a part of
-- it, and it copies the `__name` of a value. So these are bounded, too, where there are many.
local TEXTS_MAX = 1 << 26
local function check_texts(name, ...)
  local texts, _, size = pack(...), native("names", ...)
  size = size + 1024 * texts.n
  for i = 1, texts.n do
    local text = texts[i]
    if type(text) == "string" then size = size + #text end
  end
  if size > TEXTS_MAX then error("too many or too long arguments for '" .. name .. "'", 3) end
end
for name, act in next, { pack = lua.pack, packsize = lua.packsize, unpack = lua.unpack } do
  string[name] = function(text, ...)
    check_format(text, name)
    if select("#", ...) > 16 then check_texts(name, ...) end
    return act(text, ...)
  end
end
local function check_quoted(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" and #value > SLOW_MAX then
      error("bad argument #" .. i + 1 .. " to 'format' (a text of more than " .. SLOW_MAX .. " bytes for '%q')", 3)
    end
  end
end
function string.format(text, ...)
  check_format(text, "format")
  if type(text) == "string" then
    -- Only a longer format refers to more arguments.
    if #text > 32 and select("#", ...) > 16 then check_texts("format", ...) end
    if find(text, "q", 1, true) then check_quoted(...) end
  end
  return format(text, ...)
end

-- Lua repeats a text piece by piece: slowly if the pieces are short, and without bound if they are
-- empty. Many short ones are joined to long ones first.
local function is_text(value) return type(value) == "string" or type(value) == "number" end
function string.rep(text, count, separator)
  local times = tonumber(count)
  if not times or times % 1 ~= 0 or times <= 65536 or not is_text(text) or not is_text(separator or "") then
    return rep(text, count, separator)
  end
  local piece, last = text .. (separator or ""), ""
  if piece == "" then return piece end
  if #piece >= 64 then return rep(text, count, separator) end
  if (separator or "") ~= "" then times, last = times - 1, text end
  return rep(rep(piece, 4096), times // 4096) .. rep(piece, times % 4096) .. last
end

-- The longest text for which Lua's matcher is used, for each pattern: it tries all ways to match,
-- which are more for each repetition in the pattern. The last repetition tries only one.
local ROOTS = { 316, 46, 17, 10, 6, 5, 4 }
local longest, known = {}, 0
local function weigh(pattern)
  if type(pattern) ~= "string" or #pattern == 0 or #pattern > 200 then return -1 end
  local rest = gsub(pattern, "[*+?-]%)*$", "")
  local _, repetitions = gsub(rest, "[*+?-]", "")
  local _, others = gsub(rest, "%%[b%d]", "")
  local count = repetitions + others
  local most = count == 0 and 10000000 // #pattern or ROOTS[count] or 3
  if known == 100 then longest, known = {}, 0 end
  longest[pattern], known = most, known + 1
  return most
end
local function is_light(text, pattern)
  if type(text) ~= "string" or #text > (longest[pattern] or weigh(pattern)) then return false end
  if #text > LONG then pause(#text) end
  return true
end
local function is_light_and_plain(text, pattern)
  if type(text) ~= "string" or type(pattern) ~= "string" then return false end
  local work = #text * #pattern
  if work > LONG then pause(work // 8) end
  return work <= 10000000
end
function string.find(text, pattern, from, plain)
  if plain and is_light_and_plain(text, pattern) or not plain and is_light(text, pattern) then
    return find(text, pattern, from, plain)
  end
  return patterns.find(text, pattern, from, plain)
end
function string.match(text, pattern, from)
  if is_light(text, pattern) then return match(text, pattern, from) end
  return patterns.match(text, pattern, from)
end
-- After the last match, Lua's own iterator searches the rest of the text again at each call.
local function nothing() end
function string.gmatch(text, pattern, from)
  if not is_light(text, pattern) then return patterns.gmatch(text, pattern, from) end
  local act = gmatch(text, pattern, from)
  if #text <= 1024 then return act end
  local function note(first, ...)
    if first == nil then act = nothing end
    return first, ...
  end
  return function() return note(act()) end
end
-- Lua reads the replacement for each match, also if that adds nothing to the result.
function string.gsub(text, pattern, replacement, most)
  if
    type(replacement) == "string" and type(text) == "string" and (#text + 1) * #replacement <= 10000000
    and is_light(text, pattern)
  then
    return gsub(text, pattern, replacement, most)
  end
  return patterns.gsub(text, pattern, replacement, most)
end
