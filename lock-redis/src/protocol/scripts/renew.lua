#!lua flags=allow-oom
-- Moves the expiry of a hold forward, however full the memory is.
--
-- KEYS: lock, and, for a name that is shared, also lock, lock, ends, terms. None that may be missing: while a slot moves, a
-- server refuses a script with several keys if it does not have all. ARGV: see arguments.rs. Reply: 1: held for at least the
-- ttl from now. 0: not the holder's. 2: the name is shared, so all keys are needed.
local holder, ttl = unpack(ARGV)
local lock = KEYS[1]
local value = redis.call('GET', lock) or ''
-- With the token 0 it is an offer, from before a grant that the server has forgotten.
if string.sub(value, 1, 32) == holder and string.sub(value, 33, 35) ~= ' 0 ' then
  -- include extend.lua
  return 1
end
if not string.find(value, '^%l+ %d+ %d+ %d+') then return 0 end
if not KEYS[5] then return 2 end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- include sharers.lua
local token, terms = find(holder)
if not is_shared(kind_of(value)) or not token or token == '0' then return 0 end
if tonumber(redis.call('ZSCORE', KEYS[4], holder) or '0') <= now_ms then return 0 end
prolong(value, holder, terms, ttl)
return 1
