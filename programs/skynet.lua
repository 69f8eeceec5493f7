-- A tree of processes: each has ten children, down to the leaves, which have numbers. The sums come
-- back up.

function node(parent, first, size)
  if size == 1 then
    process.send(parent, first)
    return
  end
  local part = size // 10
  for i = 0, 9 do
    process.spawn("node", process.self(), first + i * part, part)
  end
  local sum = 0
  for _ = 1, 10 do
    sum = sum + process.receive()
  end
  process.send(parent, sum)
end

function main(leaves)
  leaves = math.tointeger(leaves or 1000)
  local power = leaves
  while power and power > 1 and power % 10 == 0 do power = power // 10 end
  if power ~= 1 then error("the number of leaves must be a power of ten", 0) end
  local start = time.now()
  process.spawn("node", process.self(), 0, leaves)
  local sum = process.receive()
  assert(sum == leaves * (leaves - 1) // 2)
  print(string.format("%d leaves, sum %d", leaves, sum))
  log.info(string.format("%.0f ms", time.now() - start))
end
