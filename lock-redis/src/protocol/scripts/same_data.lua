-- Included first in scripts that grant, where a server that was promoted may have forgotten holds. The last argument is
-- `master_replid` as it was when the connection was made. It is another one after each promotion.
do
  local data = table.remove(ARGV)
  if not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. data, 1, true) then
    return redis.error_reply('PROMOTED this server may have other data than when the connection was made')
  end
end
