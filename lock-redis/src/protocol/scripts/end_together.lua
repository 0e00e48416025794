#!lua flags=allow-oom
-- Ends what the holders of many names have, however full the memory is, where nobody waits and nobody shares the name.
--
-- KEYS: for each the lock and the queue. ARGV: for each what `end.lua` takes first. Reply: a digit for each: 1: it was the holder's
-- hold, which has ended. 0: the holder has nothing there. 2: nothing has changed, and `end.lua` has to be asked.
local queues = {}
for index = 1, #ARGV do queues[index] = KEYS[2 * index] end
local nobody_waits = redis.call('EXISTS', unpack(queues)) == 0

local replies, ended = {}, {}
for index, held in ipairs(ARGV) do
  local lock = KEYS[2 * index - 1]
  local value = redis.pcall('GET', lock) or ''
  if type(value) == 'table' then
    -- A key of another type is another program's.
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    value = ''
  end
  -- Mostly the value is as its grant left it.
  local is_held = value == held or string.sub(value, 1, 32) == string.sub(held, 1, 32)
  if not nobody_waits and redis.call('EXISTS', queues[index]) == 1 then
    replies[index] = '2'
  elseif is_held then
    table.insert(ended, lock)
    replies[index] = '1'
  else
    replies[index] = string.find(value, '^%l+ %d+ %d+ %d+') and '2' or '0'
  end
end
-- The only write, so that no error comes after one.
if ended[1] then redis.call('DEL', unpack(ended)) end
return table.concat(replies)
