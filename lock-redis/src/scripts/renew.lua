-- KEYS: lock. ARGV: holder, ttl in ms. 1: held for at least the ttl from now. 0: not the holder's.
if redis.call('GETRANGE', KEYS[1], 0, 31) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
