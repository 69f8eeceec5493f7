-- The part `fs` of the library.
local fs = ...
local try, yield, error = try, yield, error
local find, sub = string.find, string.sub

function fs.read(path, from, count) return try(yield("fs.read", path, from or 0, count or -1)) end
function fs.write(path, bytes) return try(yield("fs.write", path, bytes)) end
function fs.append(path, bytes) return try(yield("fs.append", path, bytes)) end
function fs.list(path) return try(yield("fs.list", path)) end
function fs.kind(path) return try(yield("fs.kind", path)) end
function fs.make_directory(path) return try(yield("fs.make_directory", path)) end
function fs.remove(path) return try(yield("fs.remove", path)) end
function fs.rename(from, to) return try(yield("fs.rename", from, to)) end
function fs.size(path) return try(yield("fs.size", path)) end

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
      local more, cause = fs.read(path, at, CHUNK)
      if not more then error(cause, 2) end
      at, rest, ended = at + #more, rest .. more, #more < CHUNK
    end
  end
end

