-- Takes a free name; takes one that is offered to the asker or reserved for it; repeats a grant; or says who has it,
-- and then keeps a place for an asker that waits.
--
-- KEYS: lock, fence, queue. ARGV: holder, ttl in ms, " label" or "", token floor or "0".
-- Of one that waits also: its inbox, how long its place lasts in ms, the grace in ms, "1" if it may have a place.
-- The token: granted. {value, ms left (-1: no end), places ahead (-1: it has none)}: taken. 0: the holder id is dead.
local HOUR_MS, LONGEST_PLACE_MS = 3600000, 15000
local holder, ttl, floor, inbox = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
-- include next_token.lua
local grant = holder .. ' ' .. token .. ' ' .. ttl .. ARGV[3]

if redis.call('SET', KEYS[1], grant, 'NX', 'PX', ttl) then
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', fence_ms)
  if ARGV[8] == '1' then
    local place = holder .. ' ' .. inbox
    redis.call('ZREM', KEYS[3], place, '>' .. place)
  end
  return token
end

local value = redis.call('GET', KEYS[1])
local id, stored, term = string.match(value, '^(%w+) (%d+) (%d+)')
if id == holder and stored ~= '0' then
  -- include extend.lua
  -- What it repeats may have been sent before the place was taken.
  if ARGV[8] == '1' then redis.call('ZREM', KEYS[3], holder .. ' ' .. inbox, '>' .. holder .. ' ' .. inbox) end
  return stored
end

local left = redis.call('PTTL', KEYS[1])
local now_ms = math.floor(tonumber(now) / 1000)
local kept_until = id and tonumber(string.match(id, '^kept(%d+)$'))
if kept_until and kept_until > now_ms + tonumber(term) then
  -- The server's clock was set back. Written down, or every asker would begin the term anew.
  left, kept_until = tonumber(term), now_ms + tonumber(term)
  value = string.format('kept%028.0f', kept_until) .. string.sub(value, 33)
  redis.call('SET', KEYS[1], value, 'PX', left)
elseif id and #id == 32 and not kept_until and left > tonumber(term) then
  -- Set back. Nobody ever asked for a longer term than this. (A kept name may last for the grace of any waiter more.)
  left = tonumber(term)
  redis.call('PEXPIRE', KEYS[1], left)
end
-- include queue.lua
local granted = id == holder
if kept_until and kept_until <= now_ms then
  local first = first_live(1)[1]
  granted = not first or first.id == holder
end
local place = inbox and holder .. ' ' .. inbox
if granted then
  redis.call('SET', KEYS[1], grant, 'PX', ttl)
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', fence_ms)
  if inbox then redis.call('ZREM', KEYS[3], place, '>' .. place) end
  return token
end
-- Long enough for the longest of ours.
value = string.sub(value, 1, 512)
if not inbox then return {value, left, -1} end

-- Some of those that have ended: if there are many, others clear away the rest.
local ended = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now_ms, 'LIMIT', 0, 100)
for i = 1, #ended do table.insert(ended, string.sub(ended[i], 2)) end
if #ended > 0 then redis.call('ZREM', KEYS[3], unpack(ended)) end
-- The asker's own. Its end is its own alone; the key's is the latest of all.
local ends = now_ms + tonumber(ARGV[6])
local number = redis.call('ZSCORE', KEYS[3], place)
if not number then
  local function newest(from, to)
    return redis.call('ZREVRANGEBYSCORE', KEYS[3], to, from, 'WITHSCORES', 'LIMIT', 0, 1)[2] or FIRST - 1 - ASIDE
  end
  number = 1 + math.max(newest(FIRST, '(0'), newest('-inf', '(' .. FIRST) + ASIDE)
elseif tonumber(number) < FIRST then
  number = number + ASIDE
end
local function below(number) return '(' .. string.format('%.0f', number) end
redis.call('ZADD', KEYS[3], string.format('%.0f', number), place, ends, '>' .. place)
local ahead = redis.call('ZCOUNT', KEYS[3], FIRST, below(number))
  + redis.call('ZCOUNT', KEYS[3], '-inf', below(number - ASIDE))
local latest = tonumber(redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
if latest > now_ms + LONGEST_PLACE_MS then
  -- From before the clock was set back.
  latest = now_ms + LONGEST_PLACE_MS
  for _, far in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. string.format('%.0f', latest), '+inf')) do
    redis.call('ZADD', KEYS[3], latest, far)
  end
end
redis.call('PEXPIREAT', KEYS[3], latest)

if kept_until and kept_until > now_ms then
  -- When it is over, the name is reserved for whoever is the first in the queue then.
  local kept_ms = kept_until - now_ms
  if left >= 0 and left < kept_ms + ARGV[7] then redis.call('PEXPIRE', KEYS[1], kept_ms + ARGV[7]) end
  left = kept_ms
elseif (stored == '0' or kept_until) and ahead > 0 then
  -- It is offered to one of those ahead, or reserved for the first.
  ahead = ahead - 1
end
return {value, left, ahead}
