-- The part `supervisor` of the library: supervisors of the runtime, with processes of the program.
local supervisor = ...
local yield, try = yield, try

function supervisor.start(description)
  local ok, pid = yield("supervisor.start", description)
  if ok then yield("link", pid) end
  return try(ok, pid)
end
