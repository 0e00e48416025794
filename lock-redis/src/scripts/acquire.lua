-- KEYS: lock, fence. ARGV: holder, ttl in ms, " label" or "", token floor or "0".
-- The token: granted. {value, ms left (-1: no end)}: taken. 0: the holder id is dead.
local HOUR_MS = 3600000
local holder, ttl, floor = ARGV[1], ARGV[2], ARGV[4]
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local last = redis.call('GET', KEYS[2])
local token, tombstones, kept = now, '', HOUR_MS

-- Seldom: there are tombstones, the clock is not past the last token, or a floor is given.
if (last and (#last ~= #now or last >= now)) or floor ~= '0' then
  -- include fence.lua
  local function is_larger(a, b)
    if #a ~= #b then return #a > #b end
    return a > b
  end

  local function successor(of)
    local head, nines = string.match(of, '^(%d-)(9*)$')
    if head == '' then head = '0' end
    return string.sub(head, 1, -2) .. (tonumber(string.sub(head, -1)) + 1) .. string.rep('0', #nines)
  end

  last, tombstones = take_apart(last or '0')
  if not string.match(last, '^%d+$') then
    return redis.error_reply('WRONGTYPE the key ' .. KEYS[2] .. ' holds something else than a token')
  end
  if string.find(tombstones, holder, 1, true) then return 0 end
  if not is_larger(token, last) then token = successor(last) end
  if not is_larger(token, floor) then token = successor(floor) end
  if is_larger(token, '9223372036854775807') then
    return redis.error_reply('EXHAUSTED no token is larger than the last')
  end
  tombstones, kept = still_standing(tombstones), keep_ms(token)
end

if redis.call('SET', KEYS[1], holder .. ' ' .. token .. ARGV[3], 'NX', 'PX', ttl) then
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', kept)
  return token
end

-- Long enough for the longest value of ours.
local value = redis.call('GETRANGE', KEYS[1], 0, 511)
local left = redis.call('PTTL', KEYS[1])
if string.sub(value, 1, 32) ~= holder then return {value, left} end
if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
return string.match(value, '^%x+ (%d+)')
