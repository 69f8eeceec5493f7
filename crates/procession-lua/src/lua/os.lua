-- The part `os` of the library. Its calendar is UTC.
local os = ...
local native, error, type = native, error, type
local tonumber, next = tonumber, next
local function floor(number) return number // 1 | 0 end
local strings = check(native("open", "string"))
local format, gsub, sub = strings.format, strings.gsub, strings.sub

local DAYS = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local MONTHS = { "January", "February", "March", "April", "May", "June", "July", "August", "September",
  "October", "November", "December" }
-- The greatest distance from the year 1970 in seconds: some ten thousand years.
local SECONDS_MAX = 1 << 38

local function now()
  local ok, milliseconds = native("wall clock")
  if not ok then error(milliseconds, 3) end
  return floor(milliseconds / 1000)
end

-- Returns the days from 1970 to the first day of a month. The month may be less than 1 or greater
-- than 12. Counted from March, so that the leap day is the last of its year.
local function days_to(year, month)
  local from_march = year * 12 + month - 3
  local shifted, index = from_march // 12, from_march % 12
  return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + (153 * index + 2) // 5 - 719468
end

local function fields_of(seconds)
  local days, rest = seconds // 86400, seconds % 86400
  local shifted = days + 719468
  local era = shifted // 146097
  local of_era = shifted - era * 146097
  local year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
  local of_year = of_era - (365 * year + year // 4 - year // 100)
  local index = (5 * of_year + 2) // 153
  local month = index < 10 and index + 3 or index - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  return {
    year = year, month = month, day = of_year - (153 * index + 2) // 5 + 1, hour = rest // 3600,
    min = rest // 60 % 60, sec = rest % 60, wday = (days + 4) % 7 + 1, yday = days - days_to(year, 1) + 1,
    isdst = false,
  }
end

local function field(of, name, default)
  local value = of[name]
  if value == nil then value = default end
  local number = tonumber(value)
  if not number or number % 1 ~= 0 or number > SECONDS_MAX or number < -SECONDS_MAX then
    error("field '" .. name .. "' is " .. (value == nil and "missing in" or "not an integer of") .. " the table", 3)
  end
  return floor(number)
end
local function checked(seconds)
  if type(seconds) ~= "number" or seconds % 1 ~= 0 or seconds > SECONDS_MAX or seconds < -SECONDS_MAX then
    error("bad argument (a time in seconds, as os.time returns it, expected)", 3)
  end
  return floor(seconds)
end

function os.time(of)
  if of == nil then return now() end
  if type(of) ~= "table" then error("bad argument #1 to 'time' (table expected)", 2) end
  local days = days_to(field(of, "year"), field(of, "month")) + field(of, "day") - 1
  local seconds = checked(days * 86400 + field(of, "hour", 12) * 3600 + field(of, "min", 0) * 60 + field(of, "sec", 0))
  for name, value in next, fields_of(seconds) do of[name] = value end
  return seconds
end

local SPELLED = {
  a = function(f) return sub(DAYS[f.wday], 1, 3) end, A = function(f) return DAYS[f.wday] end,
  b = function(f) return sub(MONTHS[f.month], 1, 3) end, B = function(f) return MONTHS[f.month] end,
  d = function(f) return format("%02d", f.day) end, e = function(f) return format("%2d", f.day) end,
  H = function(f) return format("%02d", f.hour) end, I = function(f) return format("%02d", (f.hour + 11) % 12 + 1) end,
  j = function(f) return format("%03d", f.yday) end, m = function(f) return format("%02d", f.month) end,
  M = function(f) return format("%02d", f.min) end, n = function() return "\n" end,
  p = function(f) return f.hour < 12 and "AM" or "PM" end, S = function(f) return format("%02d", f.sec) end,
  t = function() return "\t" end, w = function(f) return format("%d", f.wday - 1) end,
  y = function(f) return format("%02d", f.year % 100) end, Y = function(f) return format("%d", f.year) end,
  Z = function() return "UTC" end, z = function() return "+0000" end, ["%"] = function() return "%" end,
}
-- Formats that are made of others.
local COMBINED = { c = "%a %b %e %H:%M:%S %Y", D = "%m/%d/%y", F = "%Y-%m-%d", R = "%H:%M", T = "%H:%M:%S",
  x = "%m/%d/%y", X = "%H:%M:%S" }

function os.date(text, seconds)
  text = text == nil and "%c" or text
  if type(text) ~= "string" or #text > 1000 then error("bad argument #1 to 'date' (a format expected)", 2) end
  local fields = fields_of(seconds == nil and now() or checked(seconds))
  text = gsub(text, "^!", "")
  if sub(text, 1, 2) == "*t" then return fields end
  text = gsub(text, "%%([cDFRTxX])", COMBINED)
  return (gsub(text, "%%(.?)", function(letter)
    local spell = SPELLED[letter]
    if not spell then error("bad argument #1 to 'date' (invalid conversion specifier '%" .. letter .. "')", 3) end
    return spell(fields)
  end))
end
