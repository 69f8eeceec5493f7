-- Counts the words of a file. A process for each part counts it, at the same time.

-- Counts the words that begin in the part of `count` bytes from `from`.
function count_part(parent, path, from, count)
  local start = math.max(from - 1, 0)
  local text = assert(fs.read(path, start, count + (from - start)))
  -- The part begins inside a word of the part before.
  local at = from > 0 and (text:find("%s") or #text + 1) or 1
  if from > 0 and at == #text + 1 then text = "" end
  -- Its last word may continue in the next part.
  local finish = from + count
  while text ~= "" and not text:sub(-1):find("%s") do
    local more = assert(fs.read(path, finish, 4096))
    if more == "" then break end
    local stop = more:find("%s")
    text = text .. more:sub(1, stop or -1)
    finish = finish + #more
  end
  local counts = {}
  for word in text:gmatch("%S+", at) do
    word = word:lower():gsub("^%p+", ""):gsub("%p+$", "")
    if word ~= "" then counts[word] = (counts[word] or 0) + 1 end
  end
  process.send(parent, counts)
end

function main(path, parts)
  if not path then error("usage: wordcount.lua FILE [PARTS]", 0) end
  parts = math.max(1, math.tointeger(parts or 4) or 1)
  local size = assert(fs.size(path))
  local part = math.max(1, (size + parts - 1) // parts)
  local started = 0
  for from = 0, size - 1, part do
    -- Linked: if one part cannot be counted, there is no result.
    process.spawn_link("count_part", process.self(), path, from, math.min(part, size - from))
    started = started + 1
  end
  local total, counts = 0, {}
  for _ = 1, started do
    for word, count in pairs(process.receive()) do
      counts[word] = (counts[word] or 0) + count
      total = total + count
    end
  end
  local words = {}
  for word in pairs(counts) do words[#words + 1] = word end
  table.sort(words, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a < b
  end)
  print(string.format("%d words, %d different", total, #words))
  for i = 1, math.min(10, #words) do print(string.format("%7d %s", counts[words[i]], words[i])) end
end
