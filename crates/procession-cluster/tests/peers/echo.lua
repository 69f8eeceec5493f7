-- The node that other implementations of the protocol talk to. `echo` answers calls with their
-- request, and calls back; `rex` is what `rpc` and `erl_call` ask. Prints the nodes that come and go.
local atom, tuple = node.atom, node.tuple

local function is(message, word, size)
  return node.kind(message) == "tuple" and #message == size and message[1] == atom(word)
end

local function answer(request)
  if is(request, "back", 4) then
    local reply, cause = node.call(request[2], request[3], request[4], 10000)
    if reply == nil then return tuple(atom("error"), cause) end
    return tuple(atom("ok"), reply)
  end
  return request
end

function echo()
  process.register("echo")
  while true do
    local message, call = process.receive()
    if message == nil then return end
    if call then
      process.reply(call, answer(message))
    elseif is(message, "to", 3) then
      process.send(message[2], message[3])
    elseif is(message, "stop", 1) then
      return
    end
  end
end

-- A request is {call, Module, Function, Arguments, GroupLeader}.
local function apply(request)
  if is(request, "call", 5) and request[2] == atom("shop") and request[3] == atom("sum") then
    local sum = 0
    for _, number in ipairs(request[4]) do sum = sum + number end
    return sum
  end
  return tuple(atom("badrpc"), atom("undef"))
end

function rex()
  process.register("rex")
  while true do
    local message, call = process.receive()
    if message == nil then return end
    if call then
      process.reply(call, apply(message))
    elseif node.kind(message) == "tuple" and #message == 2 and node.kind(message[1]) == "pid" then
      process.send(message[1], tuple(atom("rex"), apply(message[2])))
    end
  end
end

function main()
  node.subscribe()
  process.spawn("echo")
  process.spawn("rex")
  print("ready")
  while true do
    local event = process.receive()
    if event == nil then return end
    if event.node_up then print("up " .. event.node_up) end
    if event.node_down then print("down " .. event.node_down .. ": " .. event.reason) end
  end
end
