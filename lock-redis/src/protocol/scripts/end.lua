#!lua flags=allow-oom
-- Ends whatever the holder has, however full the memory is: its queue entry, and its hold, whose name it offers to the first
-- waiters. If an upgrade is undone, the hold that it replaced is back.
--
-- KEYS: lock, queue; or lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: 1: it was the holder's hold,
-- which has ended. 0: it was not. 2 more: call again to search on.
local held, rest = unpack(ARGV)
-- Mostly: the value is as its grant left it, and nobody waits.
if #held > 32 and redis.pcall('GET', KEYS[1]) == held and redis.call('EXISTS', KEYS[3] or KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

local holder = string.sub(held, 1, 32)
local purpose_at, grace, mode, keep_for, leaves_tombstone, searches_on, inbox =
  string.match(rest, '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$')
-- include other_keys.lua
-- include end_of_hold.lua
