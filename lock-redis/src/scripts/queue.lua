-- Included with `now_ms`, the server's time. The queue has two members for each place: `ID INBOX`, scored with its
-- number, which is below zero, and `>ID INBOX`, scored with the moment when it ends. So the places come first, in their
-- order, and last the one that ends last.

-- The first places whose process is there, apart from one. A pattern that somebody subscribed to does not count.
local function first_live(count, apart_from)
  local CHUNK, live, from = 4, {}, 0
  while true do
    local places = redis.call('ZRANGE', KEYS[3], from, from + CHUNK - 1)
    for _, place in ipairs(places) do
      if string.sub(place, 1, 1) == '>' then return live end
      local id, inbox = string.sub(place, 1, 32), string.sub(place, 34)
      if id ~= apart_from
        and tonumber(redis.call('ZSCORE', KEYS[3], '>' .. place) or '0') > now_ms
        and tonumber(redis.call('PUBSUB', 'NUMSUB', inbox)[2]) > 0
      then
        table.insert(live, {id = id, inbox = inbox})
        if #live == count then return live end
      end
    end
    if #places < CHUNK then return live end
    from = from + CHUNK
  end
end

-- Tells a waiter, if there is one, to look after so many ms.
local function tell(waiter, ms)
  if waiter then redis.call('PUBLISH', waiter.inbox, waiter.id .. ' ' .. string.format('%.0f', ms)) end
end
