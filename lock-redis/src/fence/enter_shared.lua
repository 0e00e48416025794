-- Included after parse.lua. KEYS: the fence. ARGV: a reader's token. OK, or the error "STALE NEWEST": a newer writer has
-- entered. Newer readers are no hindrance.
local token = ARGV[1]
local writer, reader = parse(redis.call('GET', KEYS[1]) or '0')
if not writer then return wrong_type() end
if newer(writer, token) then return stale(writer, reader) end
if not newer(token, reader) then return redis.status_reply('OK') end
return redis.call('SET', KEYS[1], writer .. ' ' .. token)
