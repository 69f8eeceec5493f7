-- The part that returns `process.receive`. The step of the process serves it. While there is more to
-- receive, that is taken from the native function, which does not suspend the process.
local take = check(native("receiver"))
local can_yield, error, type, yield = can_yield, error, type, yield
local has_more = false

return function(timeout)
  local ok, message, second, reports
  -- A receive where the process cannot be suspended is always an error.
  if has_more and (timeout == nil or type(timeout) == "number") and can_yield() then
    ok, message, has_more = take()
    if ok then return message end
  end
  ok, message, second, has_more, reports = yield("receive", timeout)
  if not ok then error(message, 2) end
  if reports then return message, nil, reports end
  if second ~= nil then return message, second end
  return message
end
