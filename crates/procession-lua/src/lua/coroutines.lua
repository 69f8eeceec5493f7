-- The part `coroutine` of the library. Inside of a coroutine of the program, an operation for the
-- runtime is passed on by the code that resumed the coroutine.
local coroutine = ...
local lua = check(native("open", "coroutine"))
local resume, close, create, status = lua.resume, lua.close, lua.create, lua.status
local yield, can_yield, native, pause, settle, failed = yield, can_yield, native, pause, settle, failed
local running, is_yieldable = lua.running, lua.isyieldable
local error, pcall, select, type = error, raw.pcall, select, type
coroutine.status = status
-- The coroutines of the program. The function of the process runs in a thread of the runtime, which
-- is the main one for the program.
local own = setmetatable({}, { __mode = "k" })

local function rethrow(ok, ...)
  if not ok then error((...), 0) end
  return ...
end
-- An error in a hook leaves the coroutine that it ends without hooks. Nothing could end what then
-- closes the variables of the coroutine. So `pcall` catches the error: it allows hooks again, and
-- closes the variables.
local function new(f, name)
  if type(f) ~= "function" then
    local kind = f == nil and "no value" or type(f)
    error("bad argument #1 to '" .. name .. "' (function expected, got " .. kind .. ")", 3)
  end
  local co = create(function(...) return rethrow(pcall(f, ...)) end)
  own[co] = true
  return co
end
function coroutine.create(f)
  local co = new(f, "create")
  return co
end

local GIVEN = {}
local pass
-- Continues after what the coroutine has yielded: a value for its resumer, or an operation.
local function serve(co, tag, ...)
  if tag == GIVEN then return true, ... end
  if can_yield() then return pass(co, resume(co, yield(tag, ...))) end
  -- Where the process cannot be suspended, output goes to the native function, which does not wait.
  if tag == "print" or tag == "log" then return pass(co, resume(co, native(tag, ...))) end
  if tag ~= nil then return pass(co, resume(co, yield(tag, ...))) end
  -- The coroutine should pause, but the code around it cannot.
  pause(0)
  return pass(co, resume(co))
end
function pass(co, ok, ...)
  if not ok then return failed((...)) end
  if status(co) == "dead" then return true, ... end
  return serve(co, ...)
end
-- Each coroutine has a count of its own of the instructions that it may take until the hook looks.
local resumed = 0
local function count()
  resumed = resumed + 1
  if resumed == 64 then
    resumed = 0
    pause(6400)
  end
end
function coroutine.resume(co, ...)
  count()
  return pass(co, resume(co, ...))
end
function coroutine.close(co)
  count()
  return settle(close(co))
end
function coroutine.running()
  local co = running()
  return co, not own[co]
end
function coroutine.isyieldable(...)
  local co = select("#", ...) == 0 and running() or (...)
  if type(co) == "thread" and not own[co] then return false end
  return is_yieldable(co)
end
function coroutine.yield(...)
  if not own[running()] then error("attempt to yield from outside a coroutine", 0) end
  return yield(GIVEN, ...)
end
function coroutine.wrap(f)
  local co = new(f, "wrap")
  return function(...)
    count()
    return rethrow(pass(co, resume(co, ...)))
  end
end
