-- The part `command` of the library: functions of the program's host.
local command = ...
local yield, try = yield, try

for name, number in next, check(native("commands")) do
  command[name] = function(value) return try(yield("command", number, value)) end
end
