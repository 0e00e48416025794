-- Included with `holder`, `ttl`, `label` and `is_plain`. Mostly the name is free and its fence is behind the clock: then this is
-- all, and it is written for few conversions. Else nothing has changed, `is_taken` says whether the name is, and `now` is the clock.
if is_plain == '1' then
  -- include clock.lua
  -- A key of another type is an error, which is not a string either.
  local last = redis.pcall('GET', KEYS[2])
  local is_behind = not last or (type(last) == 'string' and #last == #now and last < now)
  if is_behind and is_exact then
    is_taken = not redis.call('SET', KEYS[1], holder .. ' ' .. now .. ' ' .. ttl .. label, 'NX', 'PX', ttl)
    if not is_taken then
      -- include last_reserved.lua
      redis.call('SET', KEYS[2], last_reserved, 'PX', '3600000')
      return now
    end
  end
end
