#!lua flags=allow-oom
-- Makes an exclusive hold a shared one under the same id and token, however full the memory is, and offers the name to the
-- waiters that fit.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: 1: shared for at least the ttl from
-- now. 0: not the holder's.
local holder, ttl, grace, reserves = unpack(ARGV)
grace = tonumber(grace)
local value = redis.pcall('GET', KEYS[1]) or ''
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- include sharers.lua
local taken = kind_of(value)
if is_shared(taken) then
  remove_ended()
  local had, terms = find(holder)
  if not had or had == '0' then
    -- The last one ended before the key does.
    if redis.call('ZCARD', KEYS[4]) == 0 then redis.call('DEL', KEYS[1]) end
    return 0
  end
  prolong(value, holder, terms, ttl)
  return 1
end
local token, term, label = string.match(value, '^%x+ (%d+) (%d+)(.*)$')
if string.sub(value, 1, 32) ~= holder or not token or token == '0' then return 0 end
-- No earlier than it would have ended, but for a clock that was set back.
term = math.max(tonumber(term), tonumber(ttl))
local lasts = math.min(term, math.max(tonumber(ttl), redis.call('PTTL', KEYS[1])))
value = share(nil, holder, token, 's', (reserves == '1' and '0' or '') .. string.format('%.0f', term), label, lasts)
taken = 's'
if redis.call('EXISTS', KEYS[3]) == 0 then return 1 end
-- include queue.lua
-- include admit.lua
admit(nil)
return 1
