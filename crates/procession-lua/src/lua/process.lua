-- The part `process` of the library: what most processes use.
local process = ...
local native, yield, check, try, pause, error, type = native, yield, check, try, pause, error, type

-- The program is loaded for the new process in the step of this one.
function raw.spawned(ok, value)
  if not ok then error(value, 2) end
  pause(1000)
  return value
end
local spawned = raw.spawned
-- A text is the cause of a refusal.
local function sent(ok, value)
  if not ok then error(value, 2) end
  if type(value) == "string" then return false, value end
  return value
end
function process.self() return check(native("self")) end
function process.spawn(name, ...) return spawned(native("spawn", 0, name, ...)) end
function process.send(to, message) return sent(native("send", to, message)) end
function process.receive(timeout) return check(yield("receive", timeout)) end
function process.call(to, request, timeout) return try(yield("call", to, request, timeout)) end
function process.reply(call, value) return sent(native("reply", call, value)) end

set_lazy(process, "relations")
