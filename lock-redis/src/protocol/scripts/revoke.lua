#!lua flags=allow-oom
-- Ends the hold with this token, whoever has it and however full the memory is: at once, or when it would have ended. Its holder
-- id leaves a tombstone, so that no late request brings it back.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: {"": no hold has that token, or its
-- holder id, the ms that it had left (-1: no end), 1 to search on for a connected waiter}.
local asked, at_once, nobody, grace = unpack(ARGV)
local HOUR_MS, TOMBSTONE_S, RESERVED, EXACT = 3600000, 600, 16, '9007199254740000'
local value = redis.pcall('GET', KEYS[1]) or ''
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(tonumber(now) / 1000)
-- include fence.lua
-- include sharers.lua
-- The token of a grant, or one of those that it reserved for passes: they are tokens of the same hold.
local function names(token)
  local last = token
  if is_larger(EXACT, token) then last = string.format('%.0f', tonumber(token) + RESERVED) end
  return not is_larger(token, asked) and not is_larger(asked, last)
end
local shared, id, left, terms = is_shared(kind_of(value)), nil, nil, nil
if shared then
  remove_ended()
  for _, sharer in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    local token, its_terms = find(sharer)
    -- No reader reserves tokens, but one that was a writer has those of its grant.
    local was_exclusive = token and token ~= '0' and string.find(its_terms, '^%d+ 0')
    if token == asked or (was_exclusive and names(token)) then id = sharer end
  end
  if id then left = tonumber(redis.call('ZSCORE', KEYS[4], id)) - now_ms end
else
  local holder, token, rest = string.match(value, '^(%w+) (%d+)( %d+.*)$')
  if holder and #holder == 32 and token ~= '0' and names(token) then
    id, left, terms = holder, redis.call('PTTL', KEYS[1]), ' ' .. token .. rest
  end
end
if not id then
  -- The last one ended before the key does.
  if shared and redis.call('ZCARD', KEYS[4]) == 0 then redis.call('DEL', KEYS[1]) end
  return {'', 0, 0}
end

-- A name that is kept for a minimum time has no holder any more.
local is_kept = string.sub(id, 1, 4) == 'kept'
if not is_kept then
  local last, tombstones = parse_fence(redis.call('GET', KEYS[2]) or '0')
  if not string.find(tombstones, id, 1, true) then
    tombstones = tombstones .. ' ' .. id .. ':' .. string.format('%.0f', seconds() + TOMBSTONE_S)
  end
  redis.call('SET', KEYS[2], last .. unexpired(tombstones), 'PX', keep_ms(last))
end

if at_once == '1' then
  local function free()
    local holder, mode, inbox, keep_for, leaves_tombstone, searches_on = id, 'x', '', '', '', ''
    -- include end_of_hold.lua
  end
  local ended = free()
  if type(ended) ~= 'number' then return ended end
  return {id, left, ended >= 2 and 1 or 0}
end
if shared then
  redis.call('ZADD', KEYS[4], redis.call('ZSCORE', KEYS[4], id), nobody)
  redis.call('ZREM', KEYS[4], id)
  redis.call('HSET', KEYS[5], nobody, redis.call('HGET', KEYS[5], id))
  redis.call('HDEL', KEYS[5], id)
  if redis.call('HGET', KEYS[5], 'upgradable') == id then redis.call('HSET', KEYS[5], 'upgradable', nobody) end
elseif not is_kept then
  redis.call('SET', KEYS[1], nobody .. terms, 'KEEPTTL')
end
return {id, left, 0}
