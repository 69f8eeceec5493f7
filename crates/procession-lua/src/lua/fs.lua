-- The part `fs` of the library.
local fs = ...
local error, yield = error, yield
local find, sub = string.find, string.sub

local CHUNK = 65536
function fs.lines(path)
  local at, rest, ended = 0, "", false
  return function()
    while true do
      local stop = find(rest, "\n", 1, true)
      if stop then
        local found = sub(rest, 1, stop - 1)
        rest = sub(rest, stop + 1)
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
      at, rest, ended = at + #more, rest .. more, #more < CHUNK
    end
  end
end

