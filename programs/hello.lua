-- Two processes: one asks for a greeting, and the other greets.

function greeter()
  while true do
    local name, call = process.receive()
    if not name then return end
    process.reply(call, "Hello, " .. name .. "!")
  end
end

function main(name)
  local pid = process.spawn("greeter")
  print(process.call(pid, name or "world", 1000))
  process.exit(pid)
end
