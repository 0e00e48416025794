-- Included with `now`. Defines the last of the 16 tokens that are reserved behind it, as in next_token.lua. Adding up two digits is
-- cheaper than printing a number.
local tens, ones = string.byte(now, -2, -1)
tens, ones = tens + 1, ones + 6
if ones > 57 then tens, ones = tens + 1, ones - 10 end
local last_reserved
if tens <= 57 then
  last_reserved = string.sub(now, 1, -3) .. string.char(tens, ones)
else
  last_reserved = string.format('%.0f', tonumber(now) + 16)
end
