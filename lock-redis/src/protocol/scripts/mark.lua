#!lua flags=allow-oom
-- Finds out since when this run of this server has its data, as a member of its role. Writes the mark if it is another one's,
-- or from the future: then the clock was set back, and the time counts from now.
--
-- KEYS: the mark, `RUN PROMOTION SINCE`. ARGV: the run's id, and that of its last promotion, or zeros if there was none or it
-- was so long ago that the server does not know it any more, and since when by this run's other marks, or "". Reply: {since,
-- the time}, both in ms.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local run, promotion, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%w+) (%w+) (%d+)$')
local was_promoted = string.find(ARGV[2], '[^0]')
local is_own = run == ARGV[1] and (promotion == ARGV[2] or not was_promoted)
local known = math.min(tonumber(is_own and since or ARGV[3]) or now_ms, now_ms)
if not is_own or known ~= tonumber(since) then
  redis.call('SET', KEYS[1], string.format('%s %s %.0f', ARGV[1], ARGV[2], known))
end
return {known, now_ms}
