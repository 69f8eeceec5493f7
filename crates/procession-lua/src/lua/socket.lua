-- The part `socket` of the library: the methods of sockets that do more than to pass on.
local socket = ...
local yield = yield

function socket:receive_from(timeout)
  local ok, found = yield("receive from", self, timeout)
  if not ok then return nil, found end
  return found[1], found[2]
end
