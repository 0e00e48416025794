#!lua flags=allow-oom
-- Finds out since when this run of this server has its data, as a member of its role. Writes the mark if it is another one's,
-- or from the future: then the clock was set back, and the time counts from now.
--
-- KEYS: the mark, `RUN PROMOTION SINCE`. ARGV: see arguments.rs. Reply: {since, the time}, both in ms.
local own_run, own_promotion, known_since = unpack(ARGV)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local run, promotion, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%w+) (%w+) (%d+)$')
local was_promoted = string.find(own_promotion, '[^0]')
local is_own = run == own_run and (promotion == own_promotion or not was_promoted)
local known = math.min(tonumber(is_own and since or known_since) or now_ms, now_ms)
if not is_own or known ~= tonumber(since) then
  redis.call('SET', KEYS[1], string.format('%s %s %.0f', own_run, own_promotion, known))
end
return {known, now_ms}
