#!lua flags=allow-oom
-- Moves the expiry of a hold forward, however full the memory is.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: holder, ttl in ms. Reply: 1: held for at least the ttl from now. 0: not the
-- holder's.
local ttl, value = ARGV[2], redis.call('GET', KEYS[1]) or ''
if string.sub(value, 1, 32) == ARGV[1] then
  -- include extend.lua
  return 1
end
if not string.find(value, '^%l+ %d+ %d+ %d+') then return 0 end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- include sharers.lua
local token, terms = find(ARGV[1])
if not is_shared(kind_of(value)) or not token or token == '0' then return 0 end
if tonumber(redis.call('ZSCORE', KEYS[4], ARGV[1]) or '0') <= now_ms then return 0 end
prolong(value, ARGV[1], terms, ttl)
return 1
