-- KEYS: lock, fence. ARGV: holder, "tombstone" or "". 1: the hold was the holder's and has ended. 0: it was not.
local value = redis.pcall('GETRANGE', KEYS[1], 0, 31)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
local ours = value == ARGV[1]
if ours then redis.call('DEL', KEYS[1]) end
if ARGV[2] == 'tombstone' then
  local now = server_micros()
  local last, tombstones = read_fence()
  if not string.find(tombstones, ARGV[1], 1, true) then
    local dies = tonumber(string.sub(now, 1, -7)) + TOMBSTONE_S
    tombstones = tombstones .. ' ' .. ARGV[1] .. ':' .. string.format('%.0f', dies)
  end
  write_fence(last, tombstones, now)
end
return ours and 1 or 0
