-- The part that returns `process.send`.
local send = check(native("sender"))
local error = error

return function(to, message)
  local ok, sent, cause = send(to, message)
  if not ok then error(sent, 2) end
  if cause then return sent, cause end
  return sent
end
