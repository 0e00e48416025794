-- KEYS: the fence, the resource. ARGV: token, then a command and its arguments. Its answer, or the error "STALE NEWEST":
-- a holder with a newer token has entered since; or "STALE 0": the fence is gone.
local newest = redis.call('GET', KEYS[1]) or '0'
if newest ~= ARGV[1] then return redis.error_reply('STALE ' .. newest) end
return redis.call(unpack(ARGV, 2))
