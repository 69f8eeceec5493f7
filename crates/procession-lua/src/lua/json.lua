-- The part `json` of the library.
local json = ...
local native, check, try = native, check, try

function json.encode(value) return check(native("encode", value)) end
function json.decode(text) return try(native("decode", text)) end
