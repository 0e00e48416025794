#!lua flags=allow-oom
-- Has the fence count a hold's token as at least another one, however full the memory is: a renewal may fail with it.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: 1: done. 0: not the holder's.
local holder, token = unpack(ARGV)
local HOUR_MS = 3600000
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(tonumber(now) / 1000)
-- include fence.lua
-- include sharers.lua
local value = redis.call('GET', KEYS[1])
local id, stored, rest = string.match(value or '', '^(%w+) (%d+)( %d+.*)$')
if is_shared(kind_of(value)) then
  -- The lock's key is that of all who share it: the fence alone changes.
  id, stored, rest = holder, find(holder), nil
  if tonumber(redis.call('ZSCORE', KEYS[4], holder) or '0') <= now_ms then return 0 end
end
if id ~= holder or not stored or stored == '0' then return 0 end

local last, tombstones = parse_fence(redis.call('GET', KEYS[2]) or '0')
if is_larger(token, last) then
  redis.call('SET', KEYS[2], token .. unexpired(tombstones), 'PX', keep_ms(token))
end
if rest and is_larger(token, stored) then
  redis.call('SET', KEYS[1], holder .. ' ' .. token .. rest, 'KEEPTTL')
end
return 1
