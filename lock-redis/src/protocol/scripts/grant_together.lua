-- Grants many names, each to its holder: those that are free and whose fence is behind the clock.
--
-- KEYS: for each the lock and the fence. ARGV: see arguments.rs, then the holder of each. Reply: the token of all that are granted, a
-- space, and a digit for each: 1: granted. 2: nothing has changed, and `acquire.lua` has to be asked.
local ttl, label = unpack(ARGV)
local now
-- include clock.lua
-- include last_reserved.lua
local terms = ' ' .. now .. ' ' .. ttl .. label
local replies = {}
for index = 1, #KEYS / 2 do
  local lock, fence = KEYS[2 * index - 1], KEYS[2 * index]
  replies[index] = '2'
  -- A key of another type is an error, which is not a string either.
  local last = redis.pcall('GET', fence)
  local is_behind = not last or (type(last) == 'string' and #last == #now and last < now)
  if is_behind and is_exact and redis.call('SET', lock, ARGV[index + 2] .. terms, 'NX', 'PX', ttl) then
    if redis.pcall('SET', fence, last_reserved, 'PX', '3600000').err then
      redis.call('DEL', lock)
    else
      replies[index] = '1'
    end
  end
end
return now .. ' ' .. table.concat(replies)
