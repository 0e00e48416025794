-- KEYS: the fence, the resource. ARGV: a writer's token, then a command and its arguments. The command's answer, or the error
-- "STALE NEWEST": a newer token has entered since; or "STALE 0": the fence is gone.
local entered, token = redis.call('GET', KEYS[1]) or '0', ARGV[1]
-- The newest writer's, and no newer reader's.
if entered ~= token and entered ~= token .. ' ' .. token then
  return redis.error_reply('STALE ' .. (string.match(entered, '%d+$') or '0'))
end
return redis.call(unpack(ARGV, 2))
