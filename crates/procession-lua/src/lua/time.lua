-- The part `time` of the library.
local time = ...
local native, yield, check = native, yield, check

function time.now() return check(native("now")) end
function time.sleep(milliseconds) return check(yield("sleep", milliseconds)) end
function time.since_epoch() return check(native("wall clock")) end
