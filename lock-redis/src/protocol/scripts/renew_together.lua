#!lua flags=allow-oom
-- Moves the expiries of many holds forward, however full the memory is.
--
-- KEYS: the lock of each. ARGV: see arguments.rs, then the holder of each. Reply: a digit for each: 1: held for at least the ttl from
-- now. 0: not the holder's. 2: several share the name, and `renew.lua` has to be asked.
local ttl = unpack(ARGV)
local replies = {}
for index, lock in ipairs(KEYS) do
  local holder = ARGV[index + 1]
  local value = redis.pcall('GET', lock) or ''
  if type(value) == 'table' then
    -- A key of another type is another program's.
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    replies[index] = '0'
  elseif string.sub(value, 1, 32) == holder and string.sub(value, 33, 35) ~= ' 0 ' then
    -- include extend.lua
    replies[index] = '1'
  else
    replies[index] = string.find(value, '^%l+ %d+ %d+ %d+') and '2' or '0'
  end
end
return table.concat(replies)
