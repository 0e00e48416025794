//! polylock's Redis backend: locks in one Redis (7.0 or newer) or Valkey, also behind Sentinels, or in a cluster of them. Tested on Redis 7.0, Redis 8
//! and Valkey 9.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_redis::RedisBackend;
//!
//! let locks = Locker::new(RedisBackend::from_url("redis://127.0.0.1")?);
//! let guard = locks.lock("orders/42").acquire().await?;
//! println!("held, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! - **Exclusion**, as long as the server keeps what it acknowledged, its clock is not stepped, and nobody else ends the
//!   hold. Redis counts a TTL by its wall clock: a step forward ends holds early, and then two guards may report themselves
//!   as held. A primary that fails over to a replica forgets what it had not replicated yet. In these cases only fencing
//!   protects. With [`replicas=N`](RedisConfig::with_replicas) a grant counts only when so many replicas have it. With
//!   [`restart_delay`](RedisConfig::with_restart_delay) a server that was restarted or promoted gives no new locks until all
//!   holds that it may have forgotten have expired, and those that live are put back.
//! - **Shared with other clients.** A lock is a plain string key, taken with `SET key value NX PX ttl` inside a script.
//!   Clients of other languages that lock this way and release by comparing the value exclude us, and we exclude them, if
//!   they use prefix and name as the key: `lock("orders/42")` here is `redis.lock("polylock:orders/42", timeout=10)` with
//!   redis-py, which is tested. Their holds have no token and no label. They do not queue, and their release wakes nobody:
//!   while they hold the lock, waiters poll.
//! - **One round trip** to acquire a free lock, one to release it; three for a lock that was waited for, however many wait.
//! - **First come, first served.** A refused acquire adds a queue entry in the same script. A release offers the lock to the
//!   first waiter whose process is connected, and has the second ask when the offer expires (the
//!   [grace](RedisConfig::with_grace), 100 ms). A waiter can be overtaken by the passes within another process, at most
//!   16 in a row (`Locker::with_passes`), and after a hold or an offer that *expires*: then the first request to arrive
//!   gets the lock, as it does after a foreign client's lock.
//! - **Shared and permit holds.** Readers share a name, one of them may be upgradable, and permits share it up to a limit. All
//!   modes wait in one queue. A release offers the lock to the first waiters, as many as fit together, up to 64 in one script;
//!   each grant goes on from there. Each holder expires by itself. A waiter that let such an offer expire keeps nobody waiting
//!   until it asks again. An upgrade comes before all waiters. A downgrade is one script. A shared pair costs two round trips, and
//!   the same number of commands in the server however many readers there are.
//! - **No lost wake-ups.** A queue entry lasts as long as the waiter's TTL, between three graces and 15 s, and is refreshed
//!   three times in that time. A refresh that finds the lock free takes it. A waiter whose process has ended is skipped at
//!   once. A hung waiter delays the queue by one grace, several by one refresh interval, a crashed holder by its TTL. If an
//!   operator deletes the key of a held lock, its waiters notice at their next refresh: after a third of their TTL, at most
//!   5 s.
//! - **Retries are safe.** A repeated acquire gets the same grant for the full TTL. No request ever shortens a hold. The
//!   server executes the requests of one connection in the order in which they were sent. A try that overtakes this
//!   process's own release, because the release had to be sent again or to wait for a connection, is repeated after it. If
//!   the connection was replaced meanwhile, whatever ends a hold leaves a tombstone in the fence key for ten minutes. By it
//!   the server rejects an acquire that arrives late over the old connection. If an acquire arrives later than that, no guard counts as held by it, and its hold expires after the TTL.
//! - **Reconnects** by itself, however long the outage was. Requests fail meanwhile and can be repeated. Each request
//!   triggers a try to connect, though not more often than every 50 ms, and fails only after a try that began after it. If
//!   nothing arrives for the response timeout after a request, the connection is replaced. A waiter whose time is up reports
//!   an outage that has lasted for two seconds.
//! - **Overload and silence.** At most 1,024 acquires are unanswered on a connection. Further ones wait in the process, and
//!   leave nothing behind if they are cancelled there. A waiter that may have a queue entry already does not wait for that, since
//!   another request leaves hardly anything more. Each acquire that is cancelled unanswered lowers that limit by 8, down to
//!   16, and each answer raises it by one. So new acquires are answered in time soon after an outage. What cancelled acquires
//!   left is undone by up to 32 names in one script.
//! - **Many tasks** share a script call. While another request of a connection is unanswered, the connection's task sends up to 32
//!   acquires of free names, 32 releases or 100 renewals in one. A request that finds none unanswered goes out at once. A request that
//!   is cancelled before it was sent is not sent. In a cluster only renewals of one hash slot share a call.
//! - **Any runtime.** The connection lives on the Tokio runtime that used it first. If that runtime ends, or nobody drives
//!   it, a request on another runtime connects there: at once, or after 0.75 to 1.5 s.
//! - **Full memory.** A server at its `maxmemory` refuses new locks and new waiters. Waiters in the queue are still granted
//!   the lock, and holds are renewed, passed on and released, also where replicas have to acknowledge.
//!
//! # Redis Cluster
//! `redis+cluster://host:port,host:port` or [`RedisConfig::cluster`] names some nodes of a cluster; they say where the others
//! are. All keys of a lock are in one hash slot, so each master has the locks of its slots, and all of the guarantees above
//! hold there, with these differences:
//!
//! - There are two connections to a master: one for requests, and one for the wake-ups of waiters, which is made when somebody
//!   first waits. Each name that is waited for has a channel of its own, `{TAG}:PREFIXinbox:ID`, in its slot. To subscribe to it
//!   costs two more round trips; the subscription lasts for 20 s after its last use.
//! - **Slots that move** keep their holds and their queues. While the keys of a slot are on their way, the server refuses to run
//!   a script on several keys: all requests but renewals are repeated every 2 to 100 ms for up to the
//!   [connect timeout](RedisConfig::with_connect_timeout), and then fail as not executed. Holds are renewed meanwhile, shared
//!   ones as long as the keys of their name are in one place. A waiter that has not yet heard of a move can be overtaken.
//! - **A master that fails** is replaced by its replica after `cluster-node-timeout`. Until then, requests for its slots fail or
//!   wait like those to a single server that is away. As the replica lacks what was not replicated yet, a hold may be
//!   forgotten: its guard learns of it by its next renewal, and only fencing protects meanwhile, unless there is a
//!   [`restart_delay`](RedisConfig::with_restart_delay) or [`replicas=N`](RedisConfig::with_replicas). A master that was cut off goes
//!   on granting to clients that reach it, for up to `cluster-node-timeout`; set `min-replicas-to-write 1`, too.
//! - If a master is away and none of its replicas takes over, all masters refuse requests, unless
//!   `cluster-require-full-coverage no` is set.
//! - A [list](lock_core::Locker::list) reads one master after the other. For each page it first asks a node for the masters. If a
//!   name's slot moves meanwhile to a master that was read before, the list may miss that name. It misses none for a failover: it
//!   reads the new master, too.
//! - There is no database but 0. [`RedisConfig::with_node_addresses`] translates what the nodes say of themselves.
//!
//! # Redis Sentinel
//! `redis+sentinel://s1:26379,s2,s3/mymaster` or [`RedisConfig::sentinel`] names all Sentinels and the master that they watch. All
//! of the guarantees above hold between failovers.
//!
//! - **Finding the master.** The backend asks all Sentinels at the same time. The answer of the latest failover wins, and among
//!   several of the same the one that most give. One Sentinel that answers is enough. The server must call itself a master (`ROLE`).
//! - **Leaving it.** The backend keeps a connection to each Sentinel, on which it hears of failovers (`+switch-master`). It leaves
//!   a master as soon as a Sentinel names another one, and when the server replies that it is a replica, disconnects, or is
//!   silent for the [response timeout](RedisConfig::with_response_timeout). It ignores that the other Sentinels announce the same
//!   failover later.
//! - **A failover** takes `down-after-milliseconds` and some tenths of a second. Requests fail or wait meanwhile, as in any outage;
//!   the next grant comes a few round trips after the first announcement.
//! - **What a failover may cost.** Replication is asynchronous: the new master lacks what the old one had not sent to it. Then it
//!   grants a lock that is still held; the first holder learns of it by its next renewal. A replica that has just begun to follow
//!   gets nothing for up to a second. [`restart_delay`](RedisConfig::with_restart_delay) and
//!   [`replicas=N`](RedisConfig::with_replicas) prevent that.
//! - **Split brain.** A master that is cut off from the Sentinels goes on granting to clients that still reach it, while the new
//!   one grants the same locks to others, for as long as the cut lasts. Set `min-replicas-to-write 1` and
//!   `min-replicas-max-lag 1` on all servers: then a master that is cut off from its replicas refuses requests after about two
//!   seconds. A master with replicas and without this setting is a [`Finding`]. With
//!   [`replicas=N`](RedisConfig::with_replicas) for all replicas, such a master grants nothing once they follow the new one.
//! - In both cases two guards may report themselves as held. Only [fencing](#fencing) protects what they write to; tokens keep
//!   growing across a failover, as long as the servers' clocks differ by less than it takes.
//! - The Sentinels have users and passwords of their own ([`RedisConfig::with_sentinel_password`]). A user needs
//!   `+sentinel|get-master-addr-by-name +sentinel|master +subscribe &+switch-master` there, and on the Redis `+role` besides the
//!   rules below. With `rediss+sentinel`, the Sentinels are reached over TLS, too; if certificates have host names, set
//!   `resolve-hostnames` and `announce-hostnames` in the Sentinels.
//!   [`RedisConfig::with_node_addresses`] translates the addresses that the Sentinels say.
//!
//! # What ends a hold
//! Its release; its TTL, if it is not renewed in time; whoever deletes or overwrites the key; eviction; a server that loses
//! data (unless there is a [`restart_delay`](RedisConfig::with_restart_delay)). Losing the connection ends nothing: the hold
//! lasts until its TTL, and is suspect meanwhile. The guard learns of an end by its next renewal, a third of the TTL later at
//! most. A fixed lease is never renewed: its guard counts as held for
//! nine tenths of its TTL, unless it is released before.
//!
//! # Fencing
//! A token is the server's time in microseconds, or the last token plus one if that is larger. So tokens keep growing after
//! a release, an expiry, a deletion, and after the server has lost all its data, unless its clock is then behind the last
//! token. The last token is kept in a second key until the clock has passed it by an hour: as long as the server keeps its
//! data, only a step back of the clock by more than that could make a token smaller.
//!
//! A resource that is stored in a Redis is protected by a [`Fence`]: before its first read, a holder *enters* with its
//! token; from then on older tokens are rejected, for reads and writes alike. Holders of shared locks
//! [enter as readers](Fence::enter_shared), which reject older writers, but not each other. A fence consists of four scripts,
//! which other clients can run, too ([`Fence::ENTER`], [`Fence::RUN`], [`Fence::ENTER_SHARED`], [`Fence::RUN_SHARED`]). A fence
//! that checks writes alone would lose updates: two holders may both have read before the older one writes.
//!
//! # Limits
//! - While a foreign client holds the lock, waiters poll, every 5 ms at first and every 50 to 100 ms later on.
//! - If the server's clock is set back, the next request that is refused cuts a hold to the longest TTL that its holder asked
//!   for, and a queue entry to 15 s. It cuts holds that share the lock to the longest TTL that any of their holders asked for. So the
//!   permits, or the upgradable place, of a holder that crashed may stay taken for longer than its own TTL.
//! - A TTL is from 10 ms to 365 days. The limit of permits is at most 4,294,967,295.
//! - A large request for permits, or a writer, keeps later waiters out until its turn, even where they would fit. If its process
//!   hangs while it waits, that lasts until its queue entry expires (15 s at most).
//! - If an operator deletes the key of a shared lock, all its holders lose it.
//! - Redisson's `RReadWriteLock` has another format: it is a key of another type, and an acquire reports it as an error.
//! - TLS only with the feature `tls`.
//! - A lock's key is prefix and name as they are, its fence is `{KEY}:fence` and its queue `{KEY}:queue`. While it is shared, it
//!   also has `{KEY}:ends` and `{KEY}:terms`. Only a name with a `}` but without a hash tag (and, without a prefix, one that
//!   begins with `{`) is encoded: `a}b` as `{a%7Db}:lock`. The fence of a name with a hash tag is `{TAG}:fence:KEY`. Each backend subscribes to the channel `PREFIXinbox:ID`.
//! - A process that ends without its destructors leaves its queue entries for up to 15 s, and its holds for their TTL.
//! - A hold survives any round trip below 0.4 of its TTL, if that is below the response timeout too
//!   ([5 s](RedisConfig::with_response_timeout)), and if a connection, which takes about five round trips, is made within
//!   the connect timeout ([5 s](RedisConfig::with_connect_timeout)).
//! - If nobody drives the runtime of the connection, a hold with a TTL below 5 s may expire before another runtime has
//!   taken over.
//! - A [list](lock_core::Locker::list) begins again on a server that was started anew meanwhile, so it may show names twice. Without
//!   the permission `+info` it does so after each reconnect, and its pages cannot be continued by another process.
//! - Behind more than 500 entries of ended processes, the release searches for a waiter in several steps. A request that
//!   arrives in between may get the lock first.
//!
//! # Server settings
//! They are checked whenever a connection is made, as far as the user may read them (`INFO`, `CONFIG GET`): [`Checks`] sets
//! what to do about settings that can lose locks, and [`RedisBackend::findings`] returns them. A server that cannot keep
//! locks at all is rejected: one before version 7.0, a Sentinel in place of a server, a replica, a
//! node of a Redis Cluster where a single server is configured, and the other way round. (A replica is tried
//! again until the connect timeout ends, as it may be promoted. If a primary becomes a replica, the backend reconnects and
//! looks its address up again.)
//!
//! - `maxmemory-policy noeviction`: any other may evict locks that are held.
//! - `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no` (the default), or a crash may lose locks. With
//!   anything else, set [`restart_delay`](RedisConfig::with_restart_delay) in all processes, to the longest TTL or more.
//! - With replicas, `min-replicas-to-write 1` and `min-replicas-max-lag 1`: see [Redis Sentinel](#redis-sentinel).
//! - Keep its clock by slewing, never by steps.
//! - For TLS, `tls-port`. By default (`tls-auth-clients yes`) it wants a certificate of each client.
//!
//! # Permissions needed
//! The whole conformance suite runs as this user. The rules are those of the default prefix;
//! [`RedisConfig::acl_rules`] returns the rules of any configuration.
//!
//! ```text
//! ACL SETUSER app reset on >PASSWORD
//!     ~polylock:* ~{polylock:* ~{*}:fence:polylock:* ~{*}:queue:polylock:* ~{*}:ends:polylock:*
//!     ~{*}:terms:polylock:* &polylock:*
//!     +client|caching +client|tracking +del +eval +evalsha +exists +get +hdel +hexists +hget
//!     +hincrby +hset +pexpire +pexpireat +ping +pttl +publish +pubsub|numsub +scan +set +subscribe
//!     +time +zadd +zcard +zcount +zrange +zrangebyscore +zrem +zrevrange +zrevrangebyscore
//!     +zscore
//! ```
//!
//! In a cluster the rules are others: `&{*}:polylock:*` for the channels, `+ssubscribe +sunsubscribe +spublish
//! +pubsub|shardnumsub` in place of the commands without `s`, and also `+asking +cluster|slots`.
//!
//! `+client|caching +client|tracking` serve the observers of elections: Redis then reports when a lock's key changes. Without
//! them, an observer learns of a new leader by asking every third of its TTL.
//!
//! Also useful: `+script|load`, or the first request of each kind takes two round trips; `+info` and `+config|get`, or the
//! settings cannot be checked; `+client|setinfo`, or `CLIENT LIST` does not show the library. They are tried once for each
//! connection, and appear in `ACL LOG` if they are rejected ([`Checks::Off`] does not try the settings).
//!
//! # Change of a password
//! A user of Redis may have several passwords, and connections outlive the one by which they were made. So locks stay held:
//! 1. `ACL SETUSER app >NEW`: the server takes both passwords.
//! 2. Change what [`RedisConfig::with_credentials`] reads, such as the file that `password_file=` names. Each backend reads it before
//!    each connection.
//! 3. `ACL SETUSER app <OLD`: the server takes the new password alone. `CLIENT KILL USER app` shows at once whether all clients have it.
//!
//! `requirepass` is the password of the user `default`. Sentinels have users and passwords of their own, which change likewise:
//! [`RedisConfig::with_sentinel_credentials`]. A password that is part of the URL or was given to [`RedisConfig::with_password`] needs a
//! restart of the process between the first step and the last.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use backend::RedisBackend;
pub use config::{Checks, RedisConfig};
pub use fence::{Fence, Fenced};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use lock_tls::Tls;
pub use probe::Finding;
pub use redis;

mod acquire;
mod backend;
mod client;
mod config;
mod connection;
mod error;
mod fence;
mod hold;
mod list;
mod names;
mod permissions;
mod probe;
mod protocol;
mod revoke;
mod servers;
