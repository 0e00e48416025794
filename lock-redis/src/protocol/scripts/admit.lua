-- Included with `grace`, and with `value` and `taken`, what the lock's key says and how the name is taken, which it keeps up to
-- date.

-- A script offers the name to so many waiters. The confirms go on.
local MOST_OFFERED = 64

-- Gives a waiter that fits the grace to confirm. Returns whether its entry is set aside. That of an exclusive one stays where
-- it is: if it does not confirm, the first to ask has the name.
local function offer(waiter)
  local kind = parse_mode(waiter.mode)
  if kind == 'x' then
    redis.call('SET', KEYS[1], waiter.id .. ' 0 ' .. grace, 'PX', grace)
    value, taken = nil, 'x'
  else
    value = share(is_shared(taken) and value or nil, waiter.id, '0', waiter.mode, grace, '', grace) or value
    taken = kind == 'p' and 'p' or 's'
  end
  wake(waiter, 0)
  return kind ~= 'x'
end

-- The upgrade that waits, if its process is connected and the hold that it replaces has not ended. It is before all others.
local function waiting_upgrade()
  if taken ~= 's' then return nil end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], UPGRADE, UPGRADE)) do
    local waiter = parse_entry(entry)
    local _, _, _, replaced = parse_mode(waiter.mode)
    if not has_expired(waiter)
      and tonumber(redis.call('PUBSUB', 'NUMSUB', waiter.inbox)[2]) > 0
      and replaced and redis.call('ZSCORE', KEYS[4], replaced)
    then
      return waiter
    end
  end
end

-- Offers the name to the first waiters, as many as fit together, and has the next one ask after the grace, in case they do
-- not confirm. The first one asks after `rest` ms, if that is given, where it does not fit. Where `was_free`, the name went
-- to somebody who was not the first: the first has let its turn pass, so its entry keeps nobody waiting until it asks again.
-- Returns whether to search on.
local function admit(rest, was_free)
  local offered = 0
  local upgrade = waiting_upgrade()
  if upgrade then
    local after = fits(taken, upgrade.mode) and 0 or rest
    if after then wake(upgrade, after) end
    return false
  end
  return each_connected(function(waiter)
    if offered < MOST_OFFERED and fits(taken, waiter.mode) then
      offered = offered + 1
      return false, offer(waiter)
    end
    if was_free and offered == 0 then
      was_free = false
      wake(waiter, 0)
      return false, true
    end
    local after = offered > 0 and grace or rest
    if after then wake(waiter, after) end
    return true
  end)
end
