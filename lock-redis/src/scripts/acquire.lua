-- KEYS: lock, fence. ARGV: holder, ttl in ms, " label" or "", token floor.
-- The token: granted. {value, ms left (-1: no end)}: taken. 0: the holder id is dead.
local function is_larger(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local function successor(token)
  local head, nines = string.match(token, '^(%d-)(9*)$')
  if head == '' then head = '0' end
  return string.sub(head, 1, -2) .. (tonumber(string.sub(head, -1)) + 1) .. string.rep('0', #nines)
end

local holder, ttl = ARGV[1], ARGV[2]
local now = server_micros()
local last, tombstones = read_fence()
if not string.match(last, '^%d+$') then
  return redis.error_reply('WRONGTYPE the key ' .. KEYS[2] .. ' holds something else than a token')
end
if tombstones ~= '' and string.find(tombstones, holder, 1, true) then return 0 end

local token = now
if not is_larger(token, last) then token = successor(last) end
if not is_larger(token, ARGV[4]) then token = successor(ARGV[4]) end
if #token > 18 and is_larger(token, '9223372036854775807') then
  return redis.error_reply('EXHAUSTED no token is larger than the last')
end
if redis.call('SET', KEYS[1], holder .. ' ' .. token .. ARGV[3], 'NX', 'PX', ttl) then
  write_fence(token, tombstones, now)
  return token
end

-- Long enough for the longest value of ours.
local value = redis.call('GETRANGE', KEYS[1], 0, 511)
local left = redis.call('PTTL', KEYS[1])
if string.sub(value, 1, 32) ~= holder then return {value, left} end
if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
return string.match(value, '^%x+ (%d+)')
