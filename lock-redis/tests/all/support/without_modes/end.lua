#!lua flags=allow-oom
-- Ends whatever the holder has, however full the memory is: its queue entry, and its hold, whose name it offers to the first
-- waiter.
--
-- KEYS: lock, fence, queue. ARGV: holder, grace in ms, its inbox if it may have an entry or "", for how long to keep the
-- name taken in ms or "", "1" to leave a tombstone or "", and "more" to search on for a connected waiter.
-- Reply: 1: it was the holder's hold, which has ended. 0: it was not. 2 more: call again to search on.
local holder, grace, entry = ARGV[1], tonumber(ARGV[2]), ARGV[1] .. ' ' .. ARGV[3]
local value = redis.pcall('GET', KEYS[1]) or ''
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end
local ours = string.sub(value, 1, 32) == holder
if ours then redis.call('DEL', KEYS[1]) end
local left = ARGV[3] ~= '' and redis.call('ZREM', KEYS[3], entry, '>' .. entry) > 0
if ARGV[5] == '1' then
  local HOUR_MS, TOMBSTONE_S = 3600000, 600
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  -- Included with `now`, the server's time in microseconds, and HOUR_MS.
-- The value of a fence key: the last token, then " HOLDER:EXPIRES" for each tombstone, EXPIRES in seconds of the
-- server's clock. Tokens may exceed 2^53, so they stay decimal strings.
local function parse_fence(value)
  local space = string.find(value, ' ', 1, true)
  if not space then return value, '' end
  return string.sub(value, 1, space - 1), string.sub(value, space)
end

local function seconds() return tonumber(string.sub(now, 1, -7)) end

local function unexpired(tombstones)
  local kept = ''
  for holder, expires in string.gmatch(tombstones, ' (%x+):(%d+)') do
    if tonumber(expires) > seconds() then kept = kept .. ' ' .. holder .. ':' .. expires end
  end
  return kept
end

-- How long to keep the fence: until an hour after the server's clock has passed the token.
local function keep_ms(token)
  return string.format('%.0f', HOUR_MS + math.max(0, (tonumber(token) - tonumber(now)) / 1000))
end
  local last, tombstones = parse_fence(redis.call('GET', KEYS[2]) or '0')
  if not string.find(tombstones, holder, 1, true) then
    tombstones = tombstones .. ' ' .. holder .. ':' .. string.format('%.0f', seconds() + TOMBSTONE_S)
  end
  redis.call('SET', KEYS[2], last .. unexpired(tombstones), 'PX', keep_ms(last))
end
local keep = ours and tonumber(ARGV[4])
if not left and not keep and not ARGV[6] then
  if not ours then return 0 end
  if redis.call('EXISTS', KEYS[3]) == 0 then return 1 end
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
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
local id, stored, label = string.match(value, '^(%w+) (%d+) %d+(.*)$')
local kept_until = id and tonumber(string.match(id, '^kept(%d+)$'))
local waiters, more
if keep then
  -- After that time, the name is reserved for whoever is the first in the queue then, if there is one.
  waiters, more = first_connected(2)
  local reserved = string.format('%.0f', keep + grace)
  local kept = 'kept' .. string.format('%028.0f', now_ms + keep) .. ' ' .. stored .. ' ' .. ARGV[4] .. label
  redis.call('SET', KEYS[1], kept, 'PX', waiters[1] and reserved or ARGV[4])
  wake(waiters[1], keep)
  wake(waiters[2], keep + grace)
elseif ours then
  -- The entry of the first waiter stays until it confirms. The second asks after the grace, in case the first does not.
  waiters, more = first_connected(2)
  if waiters[1] then redis.call('SET', KEYS[1], waiters[1].id .. ' 0 ' .. ARGV[2], 'PX', ARGV[2]) end
  wake(waiters[1], 0)
  wake(waiters[2], grace)
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
return (ours and 1 or 0) + (more and 2 or 0)
