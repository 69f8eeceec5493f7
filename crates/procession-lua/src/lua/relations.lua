-- The part `relations` of the library: the functions of `process` that fewer processes use.
local process = ...
local native, yield, check, spawned = native, yield, check, raw.spawned

function process.spawn_link(name, ...) return spawned(native("spawn", 1, name, ...)) end
function process.link(to) return check(yield("link", to)) end
function process.unlink(to) return check(yield("unlink", to)) end
function process.monitor(to) return check(yield("monitor", to)) end
function process.trap_exits(traps) return check(yield("trap", traps ~= false)) end
function process.exit(to, reason) return check(native("exit", to, reason or "shutdown")) end
function process.cancel(to) return check(native("cancel", to)) end
function process.cancelled() return check(yield("cancelled")) end
function process.yield() return check(yield("yield")) end
function process.register(name) return check(native("register", name)) end
function process.whereis(name) return check(native("whereis", name)) end
function process.info(of) return check(native("info", of)) end
function process.send_after(milliseconds, to, message)
  return check(yield("send after", milliseconds, to, message))
end
function process.cancel_timer(timer) return check(yield("cancel timer", timer)) end
