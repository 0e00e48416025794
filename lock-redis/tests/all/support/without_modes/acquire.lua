-- Grants a free name, or one that is offered to the asker or reserved for it. Repeats a grant. Else replies who has the
-- name, and adds or refreshes the queue entry of an asker that waits.
--
-- KEYS: lock, fence, queue. ARGV: holder, ttl in ms, " label" or "", token floor or "0".
-- If it waits, also: its inbox, the lifetime of its entry in ms, the grace in ms, "1" if it may have an entry.
-- Reply: the token: granted. {value, ms left (-1: no end), entries ahead (-1: it has none)}: taken. 0: the holder id has
-- ended before.
local HOUR_MS, LONGEST_ENTRY_MS = 3600000, 15000
local holder, ttl, floor, inbox = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
-- Included with `holder`, `floor` and HOUR_MS. Reads the clock and the fence, and decides on the next token. Defines `now` in
-- microseconds, `token`, and the `tombstones` and expiry (`fence_ms`) to write into the fence.
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local last = redis.call('GET', KEYS[2])
local token, tombstones, fence_ms = now, '', HOUR_MS

-- Rarely: there are tombstones, the clock has not passed the last token, or a floor is given.
if (last and (#last ~= #now or last >= now)) or floor ~= '0' then
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
  local function is_larger(a, b)
    if #a ~= #b then return #a > #b end
    return a > b
  end

  local function successor(of)
    local head, nines = string.match(of, '^(%d-)(9*)$')
    if head == '' then head = '0' end
    return string.sub(head, 1, -2) .. (tonumber(string.sub(head, -1)) + 1) .. string.rep('0', #nines)
  end

  last, tombstones = parse_fence(last or '0')
  if not string.match(last, '^%d+$') then
    return redis.error_reply('WRONGTYPE the key ' .. KEYS[2] .. ' holds something else than a token')
  end
  if string.find(tombstones, holder, 1, true) then return 0 end
  if not is_larger(token, last) then token = successor(last) end
  if not is_larger(token, floor) then token = successor(floor) end
  if is_larger(token, '9223372036854775807') then
    return redis.error_reply('EXHAUSTED no token is larger than the last')
  end
  tombstones, fence_ms = unexpired(tombstones), keep_ms(token)
end
local grant = holder .. ' ' .. token .. ' ' .. ttl .. ARGV[3]

if redis.call('SET', KEYS[1], grant, 'NX', 'PX', ttl) then
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', fence_ms)
  if ARGV[8] == '1' then
    local entry = holder .. ' ' .. inbox
    redis.call('ZREM', KEYS[3], entry, '>' .. entry)
  end
  return token
end

local value = redis.call('GET', KEYS[1])
local id, stored, term = string.match(value, '^(%w+) (%d+) (%d+)')
if id == holder and stored ~= '0' then
  -- Included with `value`, the hold's, and `ttl`. The hold expires after the ttl at the earliest. Its value has its longest ttl.
local rest = redis.call('PTTL', KEYS[1])
if rest >= 0 and rest < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
local head, longest, label = string.match(value, '^(%x+ %d+ )(%d+)(.*)$')
if longest and tonumber(longest) < tonumber(ttl) then
  redis.call('SET', KEYS[1], head .. ttl .. label, 'KEEPTTL')
end
  -- The repeated request may have been sent before the entry was added.
  if ARGV[8] == '1' then redis.call('ZREM', KEYS[3], holder .. ' ' .. inbox, '>' .. holder .. ' ' .. inbox) end
  return stored
end

local left = redis.call('PTTL', KEYS[1])
local now_ms = math.floor(tonumber(now) / 1000)
local kept_until = id and tonumber(string.match(id, '^kept(%d+)$'))
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
local granted = id == holder
if kept_until and kept_until <= now_ms then
  local first = first_connected(1)[1]
  granted = not first or first.id == holder
end
local entry = inbox and holder .. ' ' .. inbox
if granted then
  redis.call('SET', KEYS[1], grant, 'PX', ttl)
  redis.call('SET', KEYS[2], token .. tombstones, 'PX', fence_ms)
  if inbox then redis.call('ZREM', KEYS[3], entry, '>' .. entry) end
  return token
end
-- Long enough for the longest value of ours.
value = string.sub(value, 1, 512)
if not inbox then return {value, left, -1} end

-- Removes some expired entries. If there are many, other requests remove the rest.
local expired = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now_ms, 'LIMIT', 0, 100)
for i = 1, #expired do table.insert(expired, string.sub(expired[i], 2)) end
if #expired > 0 then redis.call('ZREM', KEYS[3], unpack(expired)) end
-- The asker's own entry. The key expires with its last entry.
local expires = now_ms + tonumber(ARGV[6])
local number = redis.call('ZSCORE', KEYS[3], entry)
if not number then
  local function newest(from, to)
    return redis.call('ZREVRANGEBYSCORE', KEYS[3], to, from, 'WITHSCORES', 'LIMIT', 0, 1)[2] or FIRST - 1 - ASIDE
  end
  number = 1 + math.max(newest(FIRST, '(0'), newest('-inf', '(' .. FIRST) + ASIDE)
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
  if left >= 0 and left < kept_ms + ARGV[7] then redis.call('PEXPIRE', KEYS[1], kept_ms + ARGV[7]) end
  left = kept_ms
elseif (stored == '0' or kept_until) and ahead > 0 then
  -- The name is offered to one of those ahead, or reserved for the first.
  ahead = ahead - 1
end
return {value, left, ahead}
