-- The part `try` of the globals of other parts.
local own = ...

-- Like check, for failures of the outside world, such as files and sockets: these are results.
function own.try(ok, value)
  if not ok then return nil, value end
  return value
end
