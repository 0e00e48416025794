-- KEYS: lock, fence. ARGV: holder. The same as end.lua, and leaves a tombstone for ten minutes.
local HOUR_MS, TOMBSTONE_S = 3600000, 600
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
-- include fence.lua
local value = redis.pcall('GETRANGE', KEYS[1], 0, 31)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
local ours = value == ARGV[1]
if ours then redis.call('DEL', KEYS[1]) end
local last, tombstones = take_apart(redis.call('GET', KEYS[2]) or '0')
if not string.find(tombstones, ARGV[1], 1, true) then
  tombstones = tombstones .. ' ' .. ARGV[1] .. ':' .. string.format('%.0f', seconds() + TOMBSTONE_S)
end
redis.call('SET', KEYS[2], last .. still_standing(tombstones), 'PX', keep_ms(last))
return ours and 1 or 0
