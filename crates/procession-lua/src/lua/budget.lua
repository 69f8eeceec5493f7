-- The part `budget` of the globals of other parts: the end of processes that compute for too long.
local own = ...
local native, can_yield, yield, error = native, can_yield, yield, error

-- Work in C counts as if it were instructions, and the process pauses after too much of it. Where
-- it cannot pause, it ends if that goes on for too long.
function own.pause(work)
  local ok, due = native("spend", work, can_yield())
  if not ok then error(due, 0) end
  if due then yield() end
end

-- A process that must end for exceeding its budget cannot catch that error.
local function is_doomed()
  local _, doomed = native("doomed")
  return doomed
end
own.is_doomed = is_doomed
function own.settle(ok, ...)
  if not ok and is_doomed() then error((...), 0) end
  return ok, ...
end
