-- Included after parse.lua. KEYS: the fence, the resource. ARGV: a reader's token, then a command and its arguments. The command's
-- answer, or the error "STALE NEWEST": a newer writer has entered since; or "STALE 0": the fence is gone.
local token = ARGV[1]
local writer, reader = parse(redis.call('GET', KEYS[1]) or '0')
if not writer then return wrong_type() end
if newer(writer, token) or newer(token, reader) then return stale(writer, reader) end
return redis.call(unpack(ARGV, 2))
