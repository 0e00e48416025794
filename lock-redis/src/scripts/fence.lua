-- The fence key's value: the last token, then one " HOLDER:DIES" for each tombstone; DIES in seconds of the server's
-- clock. Tokens may exceed 2^53, so they stay decimal strings. KEYS[2] is the fence key.
local FENCE_KEPT_MS, TOMBSTONE_S = 3600000, 600

local function server_micros()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- The last token ('0': none) and the tombstones, as they are written.
local function read_fence()
  local value = redis.call('GET', KEYS[2]) or '0'
  local space = string.find(value, ' ', 1, true)
  if not space then return value, '' end
  return string.sub(value, 1, space - 1), string.sub(value, space)
end

-- Kept for an hour after the moment when the server's clock has passed the token.
local function write_fence(token, tombstones, now)
  if tombstones ~= '' then
    local second, alive = tonumber(string.sub(now, 1, -7)), ''
    for holder, dies in string.gmatch(tombstones, ' (%x+):(%d+)') do
      if tonumber(dies) > second then alive = alive .. ' ' .. holder .. ':' .. dies end
    end
    tombstones = alive
  end
  local kept = FENCE_KEPT_MS
  if token ~= now then
    local ahead = (tonumber(token) - tonumber(now)) / 1000
    if ahead > 0 then kept = kept + ahead end
  end
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', string.format('%.0f', kept))
end
