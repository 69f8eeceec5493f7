-- The part `code` of the library: functions that run code of the program.
local raw_load, raw_xpcall = raw.load, raw.xpcall
local lists, strings = check(native("open", "table")), check(native("open", "string"))
local concat, sub, raw_pcall, type = lists.concat, strings.sub, raw.pcall, type
local is_doomed, failed, settle, pause = is_doomed, failed, settle, pause

-- Lua calls the handler of an error in a hook without hooks, where nothing could end it. The errors of
-- hooks are tables.
local function guard(handler)
  return function(cause)
    local doomed = is_doomed(cause)
    if doomed == true or doomed and type(cause) ~= "string" then return cause end
    return handler(doomed or cause)
  end
end
function late.xpcall(f, handler, ...)
  return settle(raw_xpcall(f, type(handler) == "function" and guard(handler) or handler, ...))
end

-- A binary chunk could do anything, so only text is loaded. The compiler cannot be suspended, so
-- the text is bounded. It gets the text in pieces, so that a process that is terminated ends at the
-- next one. A name takes the longest time, up to some 10 us in many nested functions.
local SOURCE_MAX = 1 << 20
local PIECE = 512
local function compiled(ok, ...)
  if ok then return ok, ... end
  local _, cause = failed((...))
  return nil, cause
end
function late.load(chunk, name, _, ...)
  if type(chunk) == "function" then
    local pieces, size = {}, 0
    repeat
      local ok, piece = settle(raw_pcall(chunk))
      if not ok then return nil, piece end
      if piece ~= nil and type(piece) ~= "string" then return nil, "reader function must return a string" end
      pieces[#pieces + 1] = piece
      size = size + #(piece or "")
    until piece == nil or piece == "" or size > SOURCE_MAX
    chunk, name = concat(pieces), name or "=(load)"
  end
  if type(chunk) == "string" and #chunk > SOURCE_MAX then
    return nil, "a chunk of more than " .. SOURCE_MAX .. " bytes"
  end
  if type(chunk) ~= "string" or #chunk <= PIECE then return raw_load(chunk, name, "t", ...) end
  pause(0)
  local at = 1
  local function piece()
    pause(PIECE // 8)
    at = at + PIECE
    return sub(chunk, at - PIECE, at - 1)
  end
  return compiled(raw_load(piece, name or chunk, "t", ...))
end
