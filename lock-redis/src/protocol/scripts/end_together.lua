#!lua flags=allow-oom
-- Ends what the holders of many names have, however full the memory is, where nobody waits and nobody shares the name.
--
-- KEYS: for each the lock and the queue. ARGV: the holder of each. Reply: a digit for each: 1: it was the holder's hold, which
-- has ended. 0: the holder has nothing there. 2: `end.lua` has to be asked.
local replies = {}
for index, holder in ipairs(ARGV) do
  local lock, queue = KEYS[2 * index - 1], KEYS[2 * index]
  local value = redis.pcall('GET', lock) or ''
  if type(value) == 'table' then
    -- A key of another type is another program's.
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    value = ''
  end
  if redis.call('EXISTS', queue) == 1 or string.find(value, '^%l+ %d+ %d+ %d+') then
    replies[index] = '2'
  elseif string.sub(value, 1, 32) == holder then
    redis.call('DEL', lock)
    replies[index] = '1'
  else
    replies[index] = '0'
  end
end
return table.concat(replies)
