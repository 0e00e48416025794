#!lua flags=allow-oom
-- Ends whatever the holder has, however full the memory is: its queue entry, and its hold, whose name it offers to the first
-- waiters. If an upgrade is undone, the hold that it replaced is back.
--
-- KEYS: lock, fence, queue, ends, terms. ARGV: see arguments.rs. Reply: 1: it was the holder's hold,
-- which has ended. 0: it was not. 2 more: call again to search on.
local holder, grace, mode, inbox, keep_for, leaves_tombstone, searches_on = unpack(ARGV)
-- include end_of_hold.lua
