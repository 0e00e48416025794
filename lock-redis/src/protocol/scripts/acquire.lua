-- Grants a name that is free, fits, is offered to the asker or reserved for it. Repeats a grant. Else replies who has the name,
-- and adds or refreshes the queue entry of an asker that waits.
--
-- KEYS: lock, fence, and perhaps queue, ends, terms. ARGV: see arguments.rs.
-- Reply: the token: granted. {value, ms left (-1: no end), entries ahead (-1: it has none)}: taken. 0: the holder id has
-- ended before. -1: the hold that an upgrade replaces has ended.
local holder, ttl, label, is_plain, rest = unpack(ARGV)
local now, is_taken
-- include grant_at_once.lua

local purpose_at, floor, mode, grace, lifetime, may_have_entry, inbox =
  string.match(rest, '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$')
-- include other_keys.lua
local HOUR_MS, LONGEST_ENTRY_MS = 3600000, 15000
-- include next_token.lua
local grant = holder .. ' ' .. token .. ' ' .. ttl .. label
local waits = inbox ~= ''
local entry = waits and holder .. (mode == 'x' and ' ' or '/' .. mode .. ' ') .. inbox
may_have_entry = may_have_entry == '1'

if mode == 'x' and not is_taken and redis.call('SET', KEYS[1], grant, 'NX', 'PX', ttl) then
  write_fence()
  if may_have_entry then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
  return token
end

local value = redis.call('GET', KEYS[1])
local id, stored, term = string.match(value or '', '^(%w+) (%d+) (%d+)')
if id == holder and stored ~= '0' then
  local lock = KEYS[1]
  -- include extend.lua
  -- The repeated request may have been sent before the entry was added.
  if may_have_entry then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
  return stored
end

local now_ms = math.floor(tonumber(now) / 1000)
grace = tonumber(grace)
-- include sharers.lua
local kind, _, _, replaced = parse_mode(mode)
local taken = kind_of(value)
-- Mostly: the name is shared or free, and nobody waits.
if kind ~= 'x' and not may_have_entry and fits(taken, mode) and redis.call('EXISTS', KEYS[3]) == 0 then
  if share(value or nil, holder, token, mode, ttl, label, tonumber(ttl)) then
    write_fence()
    return token
  end
end

-- include queue.lua
-- include admit.lua
local is_offered = id == holder
if is_shared(taken) then
  remove_ended()
  local had, terms = find(holder)
  is_offered = had == '0'
  if had and not is_offered then
    prolong(value, holder, terms, ttl)
    if may_have_entry then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
    return had
  end
  if redis.call('ZCARD', KEYS[4]) == 0 then
    -- The last one ended before the key does.
    redis.call('DEL', KEYS[1])
    value, taken, id = nil, nil, nil
  end
end
if replaced and not (taken == 's' and redis.call('ZSCORE', KEYS[4], replaced)) then
  if waits then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
  return -1
end

local left, kept_until = 0, nil
if taken == 'x' then
  left = redis.call('PTTL', KEYS[1])
  kept_until = id and tonumber(string.match(id, '^kept(%d+)$'))
  if kept_until and kept_until > now_ms + tonumber(term) then
    -- The server's clock was set back. This is written, or each asker would begin the term again.
    left, kept_until = tonumber(term), now_ms + tonumber(term)
    value = string.format('kept%028.0f', kept_until) .. string.sub(value, 33)
    redis.call('SET', KEYS[1], value, 'PX', left)
  elseif id and #id == 32 and not kept_until and left > tonumber(term) then
    -- The clock was set back: the holder never asked for a longer term. (A kept name may last longer by a waiter's grace.)
    left = tonumber(term)
    redis.call('PEXPIRE', KEYS[1], left)
  end
end

local granted, was_free = is_offered, false
if not taken then
  granted, was_free = true, true
elseif kept_until and kept_until <= now_ms then
  local first = first_connected(1)[1]
  granted = not first or first.id == holder
elseif not granted and fits(taken, mode) then
  -- Those before the asker come first, if they fit, too. An upgrade has nobody before it.
  granted = replaced or not waiting_upgrade()
  if granted and not replaced then
    local number = tonumber(entry and redis.call('ZSCORE', KEYS[3], entry) or '0')
    if number < FIRST then number = number + ASIDE end
    local offered = 0
    each_connected(function(waiter)
      if waiter.number >= number then return true end
      if offered < MOST_OFFERED and fits(taken, waiter.mode) then
        offered = offered + 1
        return false, offer(waiter)
      end
      granted = false
      return true
    end)
    granted = granted and fits(taken, mode)
  end
end
if granted then
  write_fence()
  if waits then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
  if kind == 'x' then
    if replaced then set_aside(replaced, ttl) end
    redis.call('SET', KEYS[1], grant, 'PX', ttl)
  else
    local shared = is_shared(taken) and value or nil
    value = share(shared, holder, token, mode, ttl, label, tonumber(ttl), is_offered)
    taken = kind == 'p' and 'p' or 's'
    admit(nil, was_free)
  end
  return token
end

if is_shared(taken) then
  local latest = cut_back()
  local _, _, expires = parse_shared(value)
  if expires ~= latest then value = expire_with_last(value, latest) end
  -- The first that ends may leave enough permits.
  if kind == 'p' then latest = tonumber(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]) end
  left = latest - now_ms
end
-- Long enough for the longest value of ours.
value = string.sub(value, 1, 512)
if not waits then return {value, left, -1} end

-- Removes some expired entries. If there are many, other requests remove the rest.
local expired = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now_ms, 'LIMIT', 0, 100)
for i = 1, #expired do table.insert(expired, string.sub(expired[i], 2)) end
if #expired > 0 then redis.call('ZREM', KEYS[3], unpack(expired)) end
-- The asker's own entry. The key expires with its last entry.
local expires = now_ms + tonumber(lifetime)
local number = redis.call('ZSCORE', KEYS[3], entry)
if replaced then
  number = UPGRADE
elseif not number then
  local function newest(from, to)
    return redis.call('ZREVRANGEBYSCORE', KEYS[3], to, from, 'WITHSCORES', 'LIMIT', 0, 1)[2] or FIRST - 1 - ASIDE
  end
  number = 1 + math.max(newest(FIRST, '(0'), newest(UPGRADE, '(' .. FIRST) + ASIDE)
elseif tonumber(number) < FIRST then
  number = number + ASIDE
end
local function below(number) return '(' .. string.format('%.0f', number) end
redis.call('ZADD', KEYS[3], string.format('%.0f', number), entry, expires, '>' .. entry)
local ahead = redis.call('ZCOUNT', KEYS[3], FIRST, below(number))
  + redis.call('ZCOUNT', KEYS[3], '-inf', below(number - ASIDE))
local latest = tonumber(redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
if latest > now_ms + LONGEST_ENTRY_MS then
  -- These entries are from before the clock was set back.
  latest = now_ms + LONGEST_ENTRY_MS
  for _, far in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. string.format('%.0f', latest), '+inf')) do
    redis.call('ZADD', KEYS[3], latest, far)
  end
end
redis.call('PEXPIREAT', KEYS[3], latest)

if kept_until and kept_until > now_ms then
  -- After that time, the name is reserved for whoever is the first in the queue then.
  local kept_ms = kept_until - now_ms
  if left >= 0 and left < kept_ms + grace then redis.call('PEXPIRE', KEYS[1], kept_ms + grace) end
  left = kept_ms
elseif (stored == '0' or kept_until) and ahead > 0 then
  -- The name is offered to one of those ahead, or reserved for the first.
  ahead = ahead - 1
end
return {value, left, ahead}
