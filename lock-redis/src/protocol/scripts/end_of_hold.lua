-- Included with the arguments of `end.lua`, in whose place it returns.
grace = tonumber(grace)
local value = redis.pcall('GET', KEYS[1]) or ''
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end
local ours = string.sub(value, 1, 32) == holder
local replaced = ours and not string.find(value, '^%x+ 0 ') and string.match(mode, '^x<(%x+)$')
local rest = replaced and redis.call('PTTL', KEYS[1])
if ours then redis.call('DEL', KEYS[1]) end
local entry = holder .. (mode == 'x' and ' ' or '/' .. mode .. ' ') .. inbox
local left = inbox ~= '' and redis.call('ZREM', KEYS[3], entry, '>' .. entry) > 0
if leaves_tombstone == '1' then
  local HOUR_MS, TOMBSTONE_S = 3600000, 600
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  -- include fence.lua
  local last, tombstones = parse_fence(redis.call('GET', KEYS[2]) or '0')
  if not string.find(tombstones, holder, 1, true) then
    tombstones = tombstones .. ' ' .. holder .. ':' .. string.format('%.0f', seconds() + TOMBSTONE_S)
  end
  redis.call('SET', KEYS[2], last .. unexpired(tombstones), 'PX', keep_ms(last))
end
local keep = ours and tonumber(keep_for)
local shared = string.find(value, '^shared %d+ %d+ %d+') or string.find(value, '^permits %d+ %d+ %d+')
if not left and not keep and searches_on == '' and not shared and not replaced then
  if not ours then return 0 end
  if redis.call('EXISTS', KEYS[3]) == 0 then return 1 end
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- include sharers.lua
local taken, had = kind_of(value ~= '' and not ours and value or nil), ours
if is_shared(taken) then
  remove_ended()
  local token = remove(holder)
  had = token and token ~= '0'
  local _, latest = last_end()
  if not latest then
    redis.call('DEL', KEYS[1])
    ours, taken = true, nil
  else
    ours = token ~= nil
    local _, _, expires = parse_shared(value)
    -- Seldom, as where all have one ttl.
    if expires - now_ms > 2 * (latest - now_ms) then value = expire_with_last(value, latest) end
  end
  if not ours and not left and searches_on == '' then return 0 end
  if redis.call('EXISTS', KEYS[3]) == 0 then return had and 1 or 0 end
end

if replaced then
  -- As it was, but for as long as the upgrade would have lasted.
  local token, term, label = string.match(value, '^%x+ (%d+) (%d+)(.*)$')
  local own, terms = find(replaced)
  if own then token, label = own, string.match(terms, '^%d+ %d+ %S+(.*)$') end
  value = share(nil, replaced, token, 'u', term, label, math.max(1, rest))
  taken = 's'
  if redis.call('EXISTS', KEYS[3]) == 0 then return 1 end
end

-- include queue.lua
-- include admit.lua
local id, stored, label = string.match(value, '^(%w+) (%d+) %d+(.*)$')
local kept_until = id and tonumber(string.match(id, '^kept(%d+)$'))
local waiters, more
if keep then
  -- After that time, the name is reserved for whoever is the first in the queue then, if there is one.
  waiters, more = first_connected(2)
  local reserved = string.format('%.0f', keep + grace)
  local kept = 'kept' .. string.format('%028.0f', now_ms + keep) .. ' ' .. stored .. ' ' .. keep_for .. label
  redis.call('SET', KEYS[1], kept, 'PX', waiters[1] and reserved or keep_for)
  wake(waiters[1], keep)
  wake(waiters[2], keep + grace)
elseif is_shared(taken) then
  local _, latest = last_end()
  more = admit((left or searches_on ~= '') and latest - now_ms or nil)
elseif ours then
  -- The next waiter asks after the grace, in case those that the name is offered to do not confirm.
  more = admit(nil)
else
  -- The one that left may have been the first or second waiter: wake those that are now. A free name is not offered, since
  -- the grace might be wasted on a waiter that let an offer lapse.
  local offered_to = stored == '0' and id
  waiters, more = first_connected(2, offered_to)
  local rest, apart = 0, 0
  if value ~= '' then
    rest, apart = redis.call('PTTL', KEYS[1]), grace
    if kept_until then rest = kept_until - now_ms end
  end
  wake(waiters[1], math.max(0, rest))
  wake(not offered_to and waiters[2], math.max(0, rest + apart))
end
return (had and 1 or 0) + (more and 2 or 0)
