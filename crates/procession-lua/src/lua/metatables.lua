-- The part `metatables` of the globals of programs.
local error, getmetatable, lazy, native, rawget = error, getmetatable, lazy, native, rawget
local check, setmetatable, type = check, setmetatable, type

-- A finalizer would run where it cannot be interrupted.
function late.setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("finalizers (__gc) are not supported", 2)
  end
  if getmetatable(value) == lazy then check(native("lazy", value)) end
  return setmetatable(value, metatable)
end

-- To the program, a table of the library has all of its functions and no metatable.
function late.getmetatable(value)
  local metatable = getmetatable(value)
  if metatable == lazy then return nil end
  return metatable
end
