-- KEYS: lock. ARGV: holder. 1: the hold was the holder's and has ended. 0: it was not.
if redis.call('GETRANGE', KEYS[1], 0, 31) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
