-- Whether a holder id that lost its hold has a tombstone: then somebody revoked it. KEYS: fence. Reply: 1 or 0.
local holder = unpack(ARGV)
local fence = redis.pcall('GET', KEYS[1])
return type(fence) == 'string' and string.find(fence, ' ' .. holder .. ':', 1, true) and 1 or 0
