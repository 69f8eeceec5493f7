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

-- Returns true in a process that must end for exceeding its budget, which cannot catch that error. If
-- an error is given that the process can catch, and the hook has raised it, returns the text of it.
local function is_doomed(cause)
  local _, doomed = native("doomed", cause)
  return doomed
end
own.is_doomed = is_doomed
local function failed(cause)
  local doomed = is_doomed(cause)
  if doomed == true then error(cause, 0) end
  return false, doomed or cause
end
own.failed = failed
function own.settle(ok, ...)
  if not ok then return failed((...)) end
  return ok, ...
end
