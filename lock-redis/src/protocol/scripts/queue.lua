-- Included with `now_ms`, the server's time. The queue has two members for each place: `ID INBOX`, scored with its
-- number, which is below zero, and `>ID INBOX`, scored with the moment when it ends. So the places come first, in their
-- order, and last the one that ends last.
-- The number of the first place of a queue; and by how much the score of a place is less than its number as long as it is
-- set aside, because its process was not there.
local FIRST, ASIDE = -1000000000000000, 2000000000000000

-- The first places whose process is there, apart from one; and whether to look on in another call, since so many were
-- dead that the server has other things to do. A pattern that somebody subscribed to does not count. Dead places are set
-- aside, so that nobody asks for them again; whoever is not dead after all has its place back when it refreshes it.
local function first_live(count, apart_from)
  local MOST = 512
  local live, stay, dead, size = {}, 0, 0, 4
  while true do
    local places = redis.call('ZRANGEBYSCORE', KEYS[3], FIRST, '(0', 'WITHSCORES', 'LIMIT', stay, size)
    local inboxes, aside = {}, {}
    for i = 1, #places, 2 do table.insert(inboxes, string.sub(places[i], 34)) end
    if #inboxes == 0 then return live, false end
    local there = redis.call('PUBSUB', 'NUMSUB', unpack(inboxes))
    for i, inbox in ipairs(inboxes) do
      local place, number = places[2 * i - 1], places[2 * i]
      local id = string.sub(place, 1, 32)
      if tonumber(there[2 * i]) == 0 then
        table.insert(aside, string.format('%.0f', number - ASIDE))
        table.insert(aside, place)
      elseif #live < count and id ~= apart_from
        and tonumber(redis.call('ZSCORE', KEYS[3], '>' .. place) or '0') > now_ms
      then
        table.insert(live, {id = id, inbox = inbox})
      end
    end
    if #aside > 0 then redis.call('ZADD', KEYS[3], unpack(aside)) end
    if #live == count or #inboxes < size then return live, false end
    dead = dead + #aside / 2
    if dead >= MOST then return live, true end
    stay = stay + #inboxes - #aside / 2
    size = math.min(4 * size, MOST)
  end
end

-- Tells a waiter, if there is one, to look after so many ms.
local function tell(waiter, ms)
  if waiter then redis.call('PUBLISH', waiter.inbox, waiter.id .. ' ' .. string.format('%.0f', ms)) end
end
