-- KEYS: lock, queue, ends, terms. Reply: {value or nothing: free, ms left (-1: no end),
-- how many wait, {id, terms, ms left of each that shares the name}, {entry, score of each waiter that is listed, as in queue.lua}}.
local most_waiters = unpack(ARGV)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting = redis.call('ZCOUNT', KEYS[2], '(' .. now_ms, '+inf')
local waiters = {}
if waiting > 0 and most_waiters ~= '0' then
  local entries = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, most_waiters)
  for i = 1, #entries, 2 do
    if tonumber(redis.call('ZSCORE', KEYS[2], '>' .. entries[i]) or '0') > now_ms then
      table.insert(waiters, entries[i])
      table.insert(waiters, entries[i + 1])
    end
  end
end
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {false, left, waiting, {}, waiters} end
local value, sharers = string.sub(redis.call('GET', KEYS[1]), 1, 512), {}
if string.find(value, '^%l+ %d+ %d+ %d+') then
  local ends = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local terms, rest = redis.call('HGET', KEYS[4], ends[i]), ends[i + 1] - now_ms
    if terms and rest > 0 then
      table.insert(sharers, ends[i])
      table.insert(sharers, terms)
      table.insert(sharers, rest)
    end
  end
end
return {value, left, waiting, sharers, waiters}
