-- Included with `value`, the hold's, and `ttl`. The hold expires after the ttl at the earliest. Its value has its longest ttl.
local rest = redis.call('PTTL', KEYS[1])
if rest >= 0 and rest < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
local head, longest, label = string.match(value, '^(%x+ %d+ )(%d+)(.*)$')
if longest and tonumber(longest) < tonumber(ttl) then
  redis.call('SET', KEYS[1], head .. ttl .. label, 'KEEPTTL')
end
