-- The part `group` of the library: named sets of processes.
local group = ...
local error, native, send = error, native, check(native("sender"))

-- Each copy of the message is a piece of work of its own, so that the process can pause.
function group.send(name, message)
  local ok, members = native("members", name)
  if not ok then error(members, 2) end
  local count = 0
  for i = 1, #members do
    local sent, accepted = send(members[i], message)
    if not sent then error(accepted, 2) end
    if accepted == true then count = count + 1 end
  end
  return count
end
