#!lua flags=allow-oom
-- Moves the expiry of a hold forward, however full the memory is.
--
-- KEYS: lock. ARGV: holder, ttl in ms. Reply: 1: held for at least the ttl from now. 0: not the holder's.
local ttl, value = ARGV[2], redis.call('GET', KEYS[1]) or ''
if string.sub(value, 1, 32) ~= ARGV[1] then return 0 end
-- include extend.lua
return 1
