-- The part `pcall` of the globals of programs.
local pcall, settle = raw.pcall, settle
function late.pcall(...) return settle(pcall(...)) end
