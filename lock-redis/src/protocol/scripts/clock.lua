-- Included with a variable `now`, which becomes the clock in microseconds. `is_exact` says whether Lua counts so far.
local time = redis.call('TIME')
local seconds, micros = time[1], time[2]
if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
now = seconds .. micros
local EXACT = '9007199254740000'
local is_exact = #now == #EXACT and now < EXACT
