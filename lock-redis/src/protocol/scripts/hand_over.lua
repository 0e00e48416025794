#!lua flags=allow-oom
-- Hands a hold over within a process, however full the memory is: what it writes replaces what is there.
--
-- KEYS: lock, fence, queue. ARGV: the next holder, ttl in ms, " label" or "", token floor or "0", the giver, and the next
-- holder's inbox if it may have a queue entry or "", and "1" if it yields to waiters.
-- Reply: the token: granted. Nothing: the giver did not have the hold. 0: the next holder id has ended before. -1: it yields,
-- and the hold is still the giver's.
local HOUR_MS, mode = 3600000, 'x'
local holder, ttl, floor = ARGV[1], ARGV[2], ARGV[4]
local value = redis.pcall('GET', KEYS[1]) or ''
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end
local id, stored = string.match(value, '^(%w+) (%d+) ')
if id == holder and stored ~= '0' then
  local lock = KEYS[1]
  -- include extend.lua
  return stored
end
if id ~= holder and id ~= ARGV[5] then return false end
-- include next_token.lua
if ARGV[7] == '1' and redis.call('EXISTS', KEYS[3]) == 1 then
  local now_ms = math.floor(tonumber(now) / 1000)
  -- include queue.lua
  if first_connected(1)[1] then return -1 end
end
redis.call('SET', KEYS[1], holder .. ' ' .. token .. ' ' .. ttl .. ARGV[3], 'PX', ttl)
redis.call('SET', KEYS[2], last_token .. tombstones, 'PX', fence_ms)
if ARGV[6] ~= '' then
  local entry = holder .. ' ' .. ARGV[6]
  redis.call('ZREM', KEYS[3], entry, '>' .. entry)
end
return token
