-- KEYS: the fence. ARGV: token. OK, or the error "STALE NEWEST": a holder with a newer token has entered.
local newest, token = redis.call('GET', KEYS[1]) or '0', ARGV[1]
if not string.match(newest, '^%d+$') then
  return redis.error_reply('WRONGTYPE the key ' .. KEYS[1] .. ' holds something else than a token')
end
-- As decimal strings, for Lua's numbers end at 2^53.
if #newest > #token or (#newest == #token and newest > token) then
  return redis.error_reply('STALE ' .. newest)
end
return redis.call('SET', KEYS[1], token)
