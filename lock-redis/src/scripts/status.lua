-- KEYS: lock. {value, ms left (-1: no end)}, or nothing: free.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return false end
return {redis.call('GETRANGE', KEYS[1], 0, 511), left}
