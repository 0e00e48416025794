-- Included with `now_ms`, the server's time. The queue has two members for each entry: `ID INBOX`, or `ID/MODE INBOX` for
-- another mode than `x`, scored with its number, which is below zero, and the same after a `>`, scored with the time when the
-- entry expires. So the entries come first, in their order, and the one that expires last is the last member.

-- The number of the first entry of a queue. An entry is set aside while its process is not connected, and after an offer:
-- then its score is its number less ASIDE, and it keeps nobody waiting.
local FIRST, ASIDE = -1000000000000000, 2000000000000000
-- The score of an upgrade, which is before all. Versions without modes take it for an entry that was set aside.
local UPGRADE = FIRST - ASIDE - 1

local function parse_entry(entry)
  local mode, inbox = string.match(entry, '^/(%S+) (.*)$', 33)
  return {entry = entry, id = string.sub(entry, 1, 32), mode = mode or 'x', inbox = inbox or string.sub(entry, 34)}
end

local function has_expired(waiter)
  return tonumber(redis.call('ZSCORE', KEYS[3], '>' .. waiter.entry) or '0') <= now_ms
end

-- Calls `visit` with each waiter whose process is connected, in their order, until it returns true. If its second result is
-- true, the entry is set aside. Returns whether to search on in another call, after so many entries without a process that
-- the server should do something else. Subscriptions to a pattern do not count. Entries without a process are set aside,
-- so that nobody checks them again. A waiter that is connected again gets its position back when it refreshes its entry.
local function each_connected(visit)
  local MOST = 512
  local stay, gone, size, is_over = 0, 0, 4, false
  while true do
    local entries = redis.call('ZRANGEBYSCORE', KEYS[3], FIRST, '(0', 'WITHSCORES', 'LIMIT', stay, size)
    local waiters, inboxes, aside = {}, {}, {}
    for i = 1, #entries, 2 do
      local waiter = parse_entry(entries[i])
      waiter.number = tonumber(entries[i + 1])
      table.insert(waiters, waiter)
      table.insert(inboxes, waiter.inbox)
    end
    if #inboxes == 0 then return false end
    local subscribers = redis.call('PUBSUB', 'NUMSUB', unpack(inboxes))
    for i, waiter in ipairs(waiters) do
      local sets_aside = false
      if tonumber(subscribers[2 * i]) == 0 then
        gone, sets_aside = gone + 1, true
      elseif not is_over and not has_expired(waiter) then
        is_over, sets_aside = visit(waiter)
      end
      if sets_aside then
        table.insert(aside, string.format('%.0f', waiter.number - ASIDE))
        table.insert(aside, waiter.entry)
      end
    end
    if #aside > 0 then redis.call('ZADD', KEYS[3], unpack(aside)) end
    if is_over or #inboxes < size then return false end
    if gone >= MOST then return true end
    stay = stay + #inboxes - #aside / 2
    size = math.min(4 * size, MOST)
  end
end

-- The first waiters, other than that of the holder `apart_from`; and whether to search on.
local function first_connected(count, apart_from)
  local found = {}
  local more = each_connected(function(waiter)
    if waiter.id ~= apart_from then table.insert(found, waiter) end
    return #found == count
  end)
  return found, more
end

-- Has a waiter, if there is one, ask again after so many ms.
local function wake(waiter, ms)
  if waiter then redis.call('PUBLISH', waiter.inbox, waiter.id .. ' ' .. string.format('%.0f', ms)) end
end
