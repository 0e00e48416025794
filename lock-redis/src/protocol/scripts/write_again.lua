#!lua flags=allow-oom
-- Writes a lock's key as it is, however full the memory is: `WAIT` counts the replicas that have this write, and so all before it.
-- As the key is there, a server serves it alone, also while its slot moves.
--
-- KEYS: lock. Reply: 1: written. 0: nobody has the lock any more.
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
redis.call('SET', KEYS[1], value, 'KEEPTTL')
return 1
