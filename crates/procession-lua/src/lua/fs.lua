-- The part `fs` of the library.
local fs = ...
local error, yield = error, yield
local strings = check(native("open", "string"))
local find, sub = strings.find, strings.sub

local CHUNK = 65536
function fs.lines(path)
  -- The bytes of `rest` before `from` have no end of a line.
  local at, rest, from, ended = 0, "", 1, false
  return function()
    while true do
      local stop = find(rest, "\n", from, true)
      if stop then
        local found = sub(rest, 1, stop - 1)
        rest, from = sub(rest, stop + 1), 1
        return found
      end
      if ended then
        if rest == "" then return nil end
        local found = rest
        rest = ""
        return found
      end
      local ok, more = yield("fs.read", path, at, CHUNK)
      if not ok then error(more, 2) end
      from = #rest + 1
      at, rest, ended = at + #more, rest .. more, #more < CHUNK
    end
  end
end

