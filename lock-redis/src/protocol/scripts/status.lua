-- KEYS: lock, queue, ends, terms. Reply: {value or nothing: free, ms left (-1: no end), how many wait, {id, terms, ms left of
-- each that shares the name}}.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting = redis.call('ZCOUNT', KEYS[2], '(' .. now_ms, '+inf')
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {false, left, waiting, {}} end
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
return {value, left, waiting, sharers}
