-- Included with `now_ms`, the server's time. The queue has two members for each entry: `ID INBOX`, scored with its
-- number, which is below zero, and `>ID INBOX`, scored with the time when the entry expires. So the entries come first, in
-- their order, and the one that expires last is the last member.

-- The number of the first entry of a queue. An entry is set aside while its process is not connected: then its score is its
-- number less ASIDE.
local FIRST, ASIDE = -1000000000000000, 2000000000000000

-- The first entries whose process is connected, other than that of the holder `apart_from`; and whether to search on in
-- another call, after so many entries without a process that the server should do something else. Subscriptions to a
-- pattern do not count. Entries without a process are set aside, so that nobody checks them again. A waiter that is
-- connected again gets its position back when it refreshes its entry.
local function first_connected(count, apart_from)
  local MOST = 512
  local found, stay, gone, size = {}, 0, 0, 4
  while true do
    local entries = redis.call('ZRANGEBYSCORE', KEYS[3], FIRST, '(0', 'WITHSCORES', 'LIMIT', stay, size)
    local inboxes, aside = {}, {}
    for i = 1, #entries, 2 do table.insert(inboxes, string.sub(entries[i], 34)) end
    if #inboxes == 0 then return found, false end
    local subscribers = redis.call('PUBSUB', 'NUMSUB', unpack(inboxes))
    for i, inbox in ipairs(inboxes) do
      local entry, number = entries[2 * i - 1], entries[2 * i]
      local id = string.sub(entry, 1, 32)
      if tonumber(subscribers[2 * i]) == 0 then
        table.insert(aside, string.format('%.0f', number - ASIDE))
        table.insert(aside, entry)
      elseif #found < count and id ~= apart_from
        and tonumber(redis.call('ZSCORE', KEYS[3], '>' .. entry) or '0') > now_ms
      then
        table.insert(found, {id = id, inbox = inbox})
      end
    end
    if #aside > 0 then redis.call('ZADD', KEYS[3], unpack(aside)) end
    if #found == count or #inboxes < size then return found, false end
    gone = gone + #aside / 2
    if gone >= MOST then return found, true end
    stay = stay + #inboxes - #aside / 2
    size = math.min(4 * size, MOST)
  end
end

-- Has a waiter, if there is one, ask again after so many ms.
local function wake(waiter, ms)
  if waiter then redis.call('PUBLISH', waiter.inbox, waiter.id .. ' ' .. string.format('%.0f', ms)) end
end
