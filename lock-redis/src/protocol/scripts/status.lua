-- KEYS: lock, queue. Reply: {value or nothing: free, ms left (-1: no end), how many wait}.
local time = redis.call('TIME')
local waiting = redis.call('ZCOUNT', KEYS[2], '(' .. (time[1] * 1000 + math.floor(time[2] / 1000)), '+inf')
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {false, left, waiting} end
return {string.sub(redis.call('GET', KEYS[1]), 1, 512), left, waiting}
