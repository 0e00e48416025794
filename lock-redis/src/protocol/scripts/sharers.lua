-- Included with `now_ms`, the server's time. Those who share the name, hold permits of it, or have it offered in such a mode.
--
-- KEYS[4], a sorted set: ID, scored with the time when it ends. KEYS[5], a hash: ID -> `TOKEN TERM MODE[ LABEL]`. TERM is the
-- longest ttl that was asked for. It begins with a 0 if the hold was exclusive: such a hold has the tokens that its grant reserved, too.
-- The token of an offer is 0. Two more fields: `permits`, how many all of them have, and
-- `upgradable`, the id of the one in that mode. Both keys count only as long as the lock's key says `shared` or `permits`:
-- `shared TOKEN EXPIRES CLEARED[ LABEL]`, with token and label of the last grant. The lock's key expires at EXPIRES, no
-- earlier than anybody in KEYS[4]. The other two expire at CLEARED, which seldom moves. After an upgrade, KEYS[5] still has the
-- terms of the hold that it replaced, for its ttl.
--
-- A mode is `x`, `s`, `u`, `pTAKE/OF`, or `x<ID` for an upgrade that replaces the hold of this id.
local KEEP_MS = 60000

-- The kind, the permits and their limit, and whom it replaces.
local function parse_mode(mode)
  local take, of = string.match(mode, '^p(%d+)/(%d+)$')
  if take then return 'p', tonumber(take), tonumber(of) end
  return string.sub(mode, 1, 1), 0, 0, string.match(mode, '^x<(%x+)$')
end

-- How the name is taken by what the lock's key says: nil: it is free; `s` (readers), `p` (permits), or `x` (all others).
local function kind_of(value)
  if not value then return nil end
  local word = string.match(value, '^(%l+) %d+ %d+ %d+')
  return word == 'shared' and 's' or word == 'permits' and 'p' or 'x'
end

local function is_shared(taken) return taken == 's' or taken == 'p' end

local function parse_shared(value)
  local word, token, expires, cleared, label = string.match(value, '^(%l+) (%d+) (%d+) (%d+)(.*)$')
  return word, token, tonumber(expires), tonumber(cleared), label
end

local function write_shared(word, token, expires, cleared, label)
  if cleared < expires then
    cleared = expires + KEEP_MS
    local at = string.format('%.0f', cleared)
    redis.call('PEXPIREAT', KEYS[4], at)
    redis.call('PEXPIREAT', KEYS[5], at)
  end
  local value = string.format('%s %s %.0f %.0f%s', word, token, expires, cleared, label)
  redis.call('SET', KEYS[1], value, 'PXAT', string.format('%.0f', expires))
  return value
end

-- Adds a holder or an offer, or confirms an offer, for at least `lasts` ms. `value` is what the lock's key says if the name is
-- shared. Returns what it says now, or nothing if the id is there already.
local function share(value, id, token, mode, term, label, lasts, is_offered)
  local expires, cleared, _ = 0, 0
  if value then
    _, _, expires, cleared = parse_shared(value)
  else
    -- Whoever is still in there lost the name when its key went.
    redis.call('DEL', KEYS[4], KEYS[5])
  end
  local ends = now_ms + lasts
  if is_offered then
    redis.call('ZADD', KEYS[4], ends, id)
  elseif redis.call('ZADD', KEYS[4], 'NX', ends, id) == 0 then
    return nil
  end
  redis.call('HSET', KEYS[5], id, token .. ' ' .. term .. ' ' .. mode .. label)
  local kind, permits = parse_mode(mode)
  if kind == 'u' then redis.call('HSET', KEYS[5], 'upgradable', id) end
  if kind == 'p' and not is_offered then redis.call('HINCRBY', KEYS[5], 'permits', permits) end
  return write_shared(kind == 'p' and 'permits' or 'shared', token, math.max(expires, ends), cleared, label)
end

-- Removes a holder or an offer. Returns its token, or nothing if it is not there.
local function remove(id)
  if redis.call('ZREM', KEYS[4], id) == 0 then return nil end
  local token, mode = string.match(redis.call('HGET', KEYS[5], id) or '0 0 s', '^(%d+) %d+ (%S+)')
  local kind, permits = parse_mode(mode)
  redis.call('HDEL', KEYS[5], id, kind == 'u' and 'upgradable' or id)
  if kind == 'p' and redis.call('HINCRBY', KEYS[5], 'permits', -permits) <= 0 then
    redis.call('HDEL', KEYS[5], 'permits')
  end
  return token
end

-- An upgrade ends the hold that it replaces, whose terms are kept for as long as the upgrade may be undone.
local function set_aside(id, ttl)
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[5], 'upgradable')
  redis.call('PEXPIRE', KEYS[5], ttl)
end

-- A holder ends by itself, and in the very millisecond: then the key of the last one is gone, too.
local function remove_ended()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now_ms)) do remove(id) end
end

-- The one that ends last, and when.
local function last_end()
  local last = redis.call('ZREVRANGE', KEYS[4], 0, 0, 'WITHSCORES')
  return last[1], tonumber(last[2])
end

-- The token, which is 0 for an offer, and the terms; nothing for an id that is not there.
local function find(id)
  local terms = redis.call('HGET', KEYS[5], id)
  return terms and string.match(terms, '^%d+'), terms
end

-- The holder with these terms ends after the ttl at the earliest. Returns what the lock's key says now.
local function prolong(value, id, terms, ttl)
  local ends = now_ms + tonumber(ttl)
  if tonumber(redis.call('ZSCORE', KEYS[4], id)) < ends then redis.call('ZADD', KEYS[4], ends, id) end
  local head, longest, rest = string.match(terms, '^(%d+ 0?)(%d+)(.*)$')
  if tonumber(longest) < tonumber(ttl) then redis.call('HSET', KEYS[5], id, head .. ttl .. rest) end
  local word, token, expires, cleared, label = parse_shared(value)
  if expires >= ends then return value end
  return write_shared(word, token, ends, cleared, label)
end

-- The lock's key expires with the last of those that are left. So other clients need not wait for one that has gone.
local function expire_with_last(value, latest)
  local word, token, _, cleared, label = parse_shared(value)
  return write_shared(word, token, latest, cleared, label)
end

-- The last one keeps others waiting for no longer than the longest ttl that it asked for: else the server's clock was set back.
-- Nobody else ends later than that one. Returns when it ends.
local function cut_back()
  while true do
    local id, ends = last_end()
    local term = string.match(redis.call('HGET', KEYS[5], id) or '', '^%d+ (%d+)')
    local latest = now_ms + tonumber(term or '0')
    if ends <= latest then return ends end
    redis.call('ZADD', KEYS[4], latest, id)
  end
end

-- Whether the mode goes with all who have the name.
local function fits(taken, mode)
  local kind, permits, of, replaced = parse_mode(mode)
  if replaced then
    return taken == 's' and redis.call('ZCARD', KEYS[4]) == 1 and redis.call('ZSCORE', KEYS[4], replaced) ~= false
  end
  if not taken or kind == 'x' then return not taken end
  if kind == 'p' then
    return taken == 'p' and tonumber(redis.call('HGET', KEYS[5], 'permits') or '0') + permits <= of
  end
  return taken == 's' and (kind == 's' or redis.call('HEXISTS', KEYS[5], 'upgradable') == 0)
end
