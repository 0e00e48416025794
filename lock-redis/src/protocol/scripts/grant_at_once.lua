-- Included with `holder`, `ttl`, `label` and `is_plain`. Mostly the name is free and its fence is behind the clock: then this is
-- all, and it is written for few conversions. Else nothing has changed, `is_taken` says whether the name is, and `now` is the clock.
if is_plain == '1' then
  local time = redis.call('TIME')
  local seconds, micros = time[1], time[2]
  if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
  now = seconds .. micros
  local EXACT = '9007199254740000'
  -- A key of another type is an error, which is not a string either.
  local last = redis.pcall('GET', KEYS[2])
  local is_behind = not last or (type(last) == 'string' and #last == #now and last < now)
  if is_behind and #now == #EXACT and now < EXACT then
    is_taken = not redis.call('SET', KEYS[1], holder .. ' ' .. now .. ' ' .. ttl .. label, 'NX', 'PX', ttl)
    if not is_taken then
      -- The 16 tokens after it are reserved, as in next_token.lua. Adding up two digits is cheaper than printing a number.
      local tens, ones = string.byte(now, -2, -1)
      tens, ones = tens + 1, ones + 6
      if ones > 57 then tens, ones = tens + 1, ones - 10 end
      local last_token
      if tens <= 57 then
        last_token = string.sub(now, 1, -3) .. string.char(tens, ones)
      else
        last_token = string.format('%.0f', tonumber(now) + 16)
      end
      redis.call('SET', KEYS[2], last_token, 'PX', '3600000')
      return now
    end
  end
end
