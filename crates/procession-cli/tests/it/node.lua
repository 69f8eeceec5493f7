-- The program of the nodes in node.rs. Prints what happens, a line each.
function echo()
  process.register("echo")
  while true do
    local request, call = process.receive()
    if request == nil then return end
    if call then process.reply(call, request) end
  end
end

-- Answers a request some time after it is cancelled.
function slow()
  process.register("slow")
  local request, call = process.receive()
  print("asked")
  time.sleep(3600000)
  time.sleep(100)
  process.reply(call, request)
end

-- Sends small messages to a node until its queue is full, and prints how it went.
local function flood(at)
  local message, count = string.rep("x", 1000), 0
  while true do
    local sent, cause = node.send("echo", at, message)
    if not sent then
      print("refused: " .. cause)
      break
    end
    count = count + 1
  end
  print("sent " .. count)
end

function main(task)
  node.subscribe()
  process.spawn("echo")
  if task == "slow" then process.spawn("slow") end
  while true do
    local event = process.receive()
    if event == nil then return end
    if event.node_up then
      print("up " .. event.node_up)
      if task == "call" then
        local reply, cause = node.call("echo", event.node_up, { 1, "two" })
        print("reply " .. tostring(reply and reply[2] or cause))
      elseif task == "waits" then
        print("reply " .. tostring(node.call("slow", event.node_up, "late")))
      elseif task == "calls" then
        while io.read() do
          print("reply " .. tostring(node.call("echo", event.node_up, 7)))
        end
      elseif task == "floods" and event.node_up:find("^till@") then
        while io.read() do flood(event.node_up) end
      elseif task == "flood" then
        -- Once the other program is stopped, which takes its standard input.
        io.read()
        flood(event.node_up)
      end
    elseif event.node_down then
      print("down " .. event.node_down .. ": " .. event.reason)
    end
  end
end
