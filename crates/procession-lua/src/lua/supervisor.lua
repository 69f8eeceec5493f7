-- The part `supervisor` of the library: supervisors of the runtime, with processes of the program.
local supervisor = ...
local native, yield, try = native, yield, try

function supervisor.start(description)
  local ok, pid = yield("supervisor.start", description)
  if ok then
    local linked, cause = yield("link", pid)
    if not linked then
      native("cancel", pid)
      return nil, cause
    end
  end
  return try(ok, pid)
end
