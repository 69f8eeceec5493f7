-- A chat server. The room is a process, and each guest has one that reads and one that writes. Try
-- it with `nc 127.0.0.1 PORT`.

function room()
  local writers = {}
  while true do
    local message, why = process.receive()
    if not message then return end
    if message.joins then
      process.monitor(message.joins)
      writers[message.joins] = message.name
      message = { text = "* " .. message.name .. " is here" }
    elseif message.down then
      local name = writers[message.down]
      writers[message.down] = nil
      message = { text = "* " .. (name or "somebody") .. " has gone" }
    end
    for writer in pairs(writers) do process.send(writer, message.text) end
  end
end

function writer(connection)
  while true do
    local text = process.receive()
    if not text or not connection:write(text .. "\n") then break end
  end
  connection:close()
end

function reader(connection, the_room)
  connection:write("Your name?\n")
  local lines = net.reader(connection)
  local name = lines.line(40, 60000)
  if name and name ~= "" then
    -- Linked, so that it ends with this process.
    local own = process.spawn_link("writer", connection)
    process.send(the_room, { joins = own, name = name })
    while true do
      local text = lines.line(1000)
      if not text then break end
      process.send(the_room, { text = name .. ": " .. text })
    end
    process.exit(own)
  end
  connection:close()
end

function main(address)
  local listener = assert(net.listen(address or "127.0.0.1:0"))
  print("listening at " .. listener:address())
  local the_room = process.spawn("room")
  net.serve(listener, "reader", the_room)
end
