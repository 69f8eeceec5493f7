-- The part `supervisor` of the library: supervisors of the runtime, with processes of the program.
local supervisor = ...
local yield, try = yield, try

function supervisor.start(description)
  local ok, pid = yield("supervisor.start", description)
  if ok then yield("link", pid) end
  return try(ok, pid)
end

for _, name in ipairs { "start_child", "terminate_child", "restart_child", "delete_child", "which", "count" } do
  supervisor[name] = function(...) return try(yield("supervisor." .. name, ...)) end
end
