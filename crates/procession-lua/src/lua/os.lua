-- The part `os` of the library.
local os, _, native, check = ...

function os.getenv(name) return check(native("getenv", name)) end
