#!lua flags=allow-oom
-- Moves the expiry of a hold forward, however full the memory is.
--
-- KEYS: lock. ARGV: holder, ttl in ms. Reply: 1: held for at least the ttl from now. 0: not the holder's.
local ttl, value = ARGV[2], redis.call('GET', KEYS[1]) or ''
if string.sub(value, 1, 32) ~= ARGV[1] then return 0 end
-- Included with `value`, the hold's, and `ttl`. The hold expires after the ttl at the earliest. Its value has its longest ttl.
local rest = redis.call('PTTL', KEYS[1])
if rest >= 0 and rest < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
local head, longest, label = string.match(value, '^(%x+ %d+ )(%d+)(.*)$')
if longest and tonumber(longest) < tonumber(ttl) then
  redis.call('SET', KEYS[1], head .. ttl .. label, 'KEEPTTL')
end
return 1
