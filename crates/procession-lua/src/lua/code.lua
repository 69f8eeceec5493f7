-- The part `code` of the library: functions that run code of the program.
local raw_load, raw_xpcall = raw.load, raw.xpcall
local concat, raw_pcall = raw.concat, raw.pcall
local is_doomed, settle, pause = is_doomed, settle, pause

-- Lua calls the handler of an error in a hook without hooks, where nothing could end it.
local function guard(handler)
  return function(...)
    if is_doomed() then return ... end
    return handler(...)
  end
end
function late.xpcall(f, handler, ...)
  return settle(raw_xpcall(f, type(handler) == "function" and guard(handler) or handler, ...))
end

-- A binary chunk could do anything, so only text is loaded. The compiler cannot be suspended, so
-- the text is bounded.
local SOURCE_MAX = 1 << 20
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
  pause(type(chunk) == "string" and #chunk // 8 or 0)
  return raw_load(chunk, name, "t", ...)
end
