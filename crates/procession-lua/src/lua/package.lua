-- The part `package` of the library: modules.
local package = ...
local native, error, setmetatable, type = native, error, setmetatable, type
local lists = check(native("open", "table"))
local concat = lists.concat
local loaded = { _G = globals }
for _, name in ipairs { "coroutine", "math", "string", "table", "utf8" } do loaded[name] = check(native("library", name)) end
package.loaded = loaded

-- The names of the modules that run, each required by the one before it.
local running = {}
local ends = { __close = function() running[#running] = nil end }

function late.require(name)
  if type(name) ~= "string" then
    error("bad argument #1 to 'require' (string expected, got " .. type(name) .. ")", 2)
  end
  if loaded[name] then return loaded[name] end
  for i = 1, #running do
    if running[i] == name then
      error("module '" .. name .. "' requires itself: " .. concat(running, " -> ", i) .. " -> " .. name, 2)
    end
  end
  local ok, module = native("module", name)
  if not ok then error(module, 2) end
  running[#running + 1] = name
  local _ <close> = setmetatable({}, ends)
  local value = module(name)
  if value ~= nil then loaded[name] = value end
  if loaded[name] == nil then loaded[name] = true end
  return loaded[name]
end
