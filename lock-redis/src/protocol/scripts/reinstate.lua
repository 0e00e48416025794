#!lua flags=allow-oom
-- Puts a hold back that the server has forgotten, if nobody else has the name, however full the memory is.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: 1: held for at least the ttl from
-- now. 0: somebody else has or had the name, or the holder id has ended.
local holder, ttl, label, token, mode, own_last, reserves = unpack(ARGV)
local HOUR_MS = 3600000
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(tonumber(now) / 1000)
-- include fence.lua
local last, tombstones = parse_fence(redis.call('GET', KEYS[2]) or '0')
if not string.match(last, '^%d+$') or string.find(tombstones, holder, 1, true) then return 0 end
local is_later = is_larger(last, own_last)
-- Of those who share a name, others may be back already.
if is_later and mode == 'x' then return 0 end

local value = redis.call('GET', KEYS[1]) or nil
-- include sharers.lua
local taken = kind_of(value)
if taken == 'x' then
  -- What our grant came after is over: an earlier hold that the server remembers, its minimum, or an offer.
  local id, stored = string.match(value, '^(%w+) (%d+) %d+')
  if id and #id == 32 and (stored == '0' or is_larger(token, stored)) then value, taken = nil, nil end
end
if is_shared(taken) then
  remove_ended()
  if find(holder) == '0' then remove(holder) end
  local kind = parse_mode(mode)
  local upgradable = kind == 'u' and redis.call('HGET', KEYS[5], 'upgradable')
  if upgradable and not is_larger(find(upgradable) or '0', token) then remove(upgradable) end
  -- Nobody in another mode has the name beside our hold: those came before our grant, unless the fence says that it is older.
  local is_over = not is_later and taken ~= (kind == 'u' and 's' or kind)
  if not is_over and not fits(taken, mode) then
    -- An offer is no hold: it is from before our grant, or of the delay, in which nobody can make use of it. Only here, since to
    -- look at all for each of many that come back takes long.
    for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
      if find(id) == '0' then remove(id) end
    end
  end
  if is_over or redis.call('ZCARD', KEYS[4]) == 0 then
    redis.call('DEL', KEYS[4], KEYS[5])
    value, taken = nil, nil
  end
end
if not fits(taken, mode) then return 0 end
if mode == 'x' then
  redis.call('SET', KEYS[1], holder .. ' ' .. token .. ' ' .. ttl .. label, 'PX', ttl)
else
  share(value, holder, token, mode, (reserves == '1' and '0' or '') .. ttl, label, tonumber(ttl))
end
if not is_later then last = own_last end
redis.call('SET', KEYS[2], last .. unexpired(tombstones), 'PX', keep_ms(last))
return 1
