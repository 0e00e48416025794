-- Included after parse.lua. KEYS: the fence. ARGV: a writer's token. OK, or the error "STALE NEWEST": a newer token has entered.
local token = ARGV[1]
local writer, reader = parse(redis.call('GET', KEYS[1]) or '0')
if not writer then return wrong_type() end
if newer(writer, token) or newer(reader, token) then return stale(writer, reader) end
-- A reader of the same token stays.
return redis.call('SET', KEYS[1], reader == token and token .. ' ' .. token or token)
