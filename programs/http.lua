-- An HTTP service with a process for each connection, and one process that counts for all of them.

function counter(owner)
  process.register("counter")
  process.send(owner, "ready")
  -- It does not end at a cancel: the processes that call it must end first.
  process.monitor(owner)
  local n = 0
  while true do
    local asked, call = process.receive(1000)
    if asked == "next" then
      n = n + 1
      process.reply(call, n)
    elseif asked then
      return
    end
  end
end

function answer(request)
  if request.path == "/" then
    return "Hello from " .. tostring(process.self()) .. "\n"
  elseif request.path == "/count" then
    local n = assert(process.call("counter", "next", 1000))
    return { headers = { ["Content-Type"] = "application/json" }, body = json.encode({ count = n }) .. "\n" }
  elseif request.path == "/echo" and request.method == "POST" then
    return request.body
  elseif request.path == "/broken" then
    error("this request fails, and no other")
  end
  return { status = 404, body = "there is no " .. request.path .. "\n" }
end

function main(address)
  process.spawn("counter", process.self())
  -- Before a process calls it by its name.
  local begun, why = process.receive(1000)
  if not begun and why == "cancelled" then return end
  assert(begun == "ready", "the counter does not begin")
  local listener = assert(net.listen(address or "127.0.0.1:0"))
  print("listening at " .. listener:address())
  http.serve(listener, "answer")
end
