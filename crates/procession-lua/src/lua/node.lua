-- The part `node` of the library: processes of other nodes, and values of Erlang.
local node = ...
local native, yield, check, try, error, type = native, yield, check, try, error, type

function node.name() return check(native("node.name")) end
function node.peers() return check(native("node.peers")) end
function node.connect(name, address, timeout)
  return try(yield("node.connect", name, address, timeout))
end
-- A text is the cause of a refusal.
function node.send(name, at, message)
  local ok, value = native("node.send", name, at, message)
  if not ok then error(value, 2) end
  if type(value) == "string" then return false, value end
  return value
end
function node.call(name, at, request, timeout)
  return try(yield("node.call", name, at, request, timeout))
end
function node.monitor(name, at) return try(native("node.monitor", name, at)) end
function node.subscribe() return check(native("node.subscribe")) end
function node.atom(text) return check(native("node.atom", text)) end
function node.tuple(...) return check(native("node.tuple", ...)) end
function node.map(entries) return check(native("node.map", entries)) end
function node.kind(value) return check(native("node.kind", value)) end
function node.format(value) return check(native("node.format", value)) end
