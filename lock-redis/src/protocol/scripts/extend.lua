-- Included with `lock`, the hold's key, its `value`, and `ttl`. The hold expires after the ttl at the earliest. Its value has its
-- longest ttl. A hold without an expiry stays so.
redis.call('PEXPIRE', lock, ttl, 'GT')
local head, longest, label = string.match(value, '^(%x+ %d+ )(%d+)(.*)$')
if longest and tonumber(longest) < tonumber(ttl) then
  redis.call('SET', lock, head .. ttl .. label, 'KEEPTTL')
end
