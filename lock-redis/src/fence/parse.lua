-- A fence holds the newest writer's token. After it, behind a space, comes the newest reader's, if no newer writer has entered.
-- Tokens are compared as decimal strings, for Lua's numbers end at 2^53.
local function newer(token, than)
  return #token > #than or (#token == #than and token > than)
end
local function parse(value)
  local writer, reader = string.match(value, '^(%d+)$'), '0'
  if not writer then writer, reader = string.match(value, '^(%d+) (%d+)$') end
  return writer, reader
end
local function wrong_type()
  return redis.error_reply('WRONGTYPE the key ' .. KEYS[1] .. ' holds something else than a fence')
end
local function stale(writer, reader)
  return redis.error_reply('STALE ' .. (newer(reader, writer) and reader or writer))
end
