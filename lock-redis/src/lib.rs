//! polylock's Redis backend: locks in one Redis (7.0 or newer) or Valkey. Tested on Redis 7.0, Redis 8 and Valkey 9.
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
//!   protects.
//! - **Shared with other clients.** A lock is a plain string key, taken with `SET key value NX PX ttl` inside a script.
//!   Clients of other languages that lock this way and release by comparing the value exclude us, and we exclude them, if
//!   they use prefix and name as the key: `lock("orders/42")` here is `redis.lock("polylock:orders/42", timeout=10)` with
//!   redis-py, which is tested. Their holds have no token and no label. They do not queue, and their release wakes nobody:
//!   while they hold the lock, waiters poll.
//! - **One round trip** to acquire a free lock, one to release it; three for a lock that was waited for, however many wait.
//! - **First come, first served.** A refused acquire adds a queue entry in the same script. A release offers the lock to the
//!   first waiter whose process is connected, and has the second ask when the offer expires (the
//!   [grace](RedisConfig::with_grace), 100 ms). A waiter can be overtaken by the hand-overs within another process, at most
//!   16 in a row (`Locker::with_hand_overs`), and after a hold or an offer that *expires*: then the first request to arrive
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
//!   the server rejects an acquire that arrives late over the old connection (a hold that would be handed over is released
//!   instead). If an acquire arrives later than that, no guard counts as held by it, and its hold expires after the TTL.
//! - **Reconnects** by itself, however long the outage was. Requests fail meanwhile and can be repeated. Each request
//!   triggers a try to connect, though not more often than every 50 ms, and fails only after a try that began after it. If
//!   nothing arrives for the response timeout after a request, the connection is replaced. A waiter whose time is up reports
//!   an outage that has lasted for two seconds.
//! - **Any runtime.** The connection lives on the Tokio runtime that used it first. If that runtime ends, or nobody drives
//!   it, a request on another runtime connects there: at once, or after half a second.
//! - **Full memory.** A server at its `maxmemory` refuses new locks and new waiters. Waiters in the queue are still granted
//!   the lock, and holds are renewed, handed over and released.
//!
//! # What ends a hold
//! Its release; its TTL, if it is not renewed in time; whoever deletes or overwrites the key; eviction; a server that loses
//! data. Losing the connection ends nothing: the hold lasts until its TTL, and is suspect meanwhile. The guard learns of an
//! end by its next renewal, a third of the TTL later at most. A fixed lease is never renewed: its guard counts as held for
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
//! - If the server's clock is set back, the next request for the lock cuts a hold to the longest TTL that its holder asked
//!   for, and a queue entry to 15 s.
//! - A TTL is from 10 ms to 365 days. The limit of permits is at most 4,294,967,295.
//! - A large request for permits, or a writer, keeps later waiters out until its turn, even where they would fit. If its process
//!   hangs while it waits, that lasts until its queue entry expires (15 s at most).
//! - If an operator deletes the key of a shared lock, all its holders lose it.
//! - Redisson's `RReadWriteLock` has another format: it is a key of another type, and an acquire reports it as an error.
//! - No Redis Cluster and no Sentinel; TLS only if the driver was compiled with it. All keys of a lock lie in one hash slot
//!   already.
//! - A lock's key is prefix and name as they are, its fence is `{KEY}:fence` and its queue `{KEY}:queue`. While it is shared, it
//!   also has `{KEY}:ends` and `{KEY}:terms`. Only a name with a `}` but without a hash tag (and, without a prefix, one that
//!   begins with `{`) is encoded: `a}b` as `{a%7Db}:lock`. The fence of a name with a hash tag is `{TAG}:fence:KEY`. Each backend subscribes to the channel `PREFIXinbox:ID`.
//! - A process that ends without its destructors leaves its queue entries for up to 15 s, and its holds for their TTL.
//! - A hold survives any round trip below 0.4 of its TTL, if that is below the response timeout too
//!   ([5 s](RedisConfig::with_response_timeout)), and if a connection, which takes about five round trips, is made within
//!   the connect timeout ([5 s](RedisConfig::with_connect_timeout)).
//! - If nobody drives the runtime of the connection, a hold with a TTL below 2 s may expire before another runtime has
//!   taken over.
//! - Behind more than 500 entries of ended processes, the release searches for a waiter in several steps. A request that
//!   arrives in between may get the lock first.
//!
//! # Server settings
//! They are checked whenever a connection is made, as far as the user may read them (`INFO`, `CONFIG GET`): [`Checks`] sets
//! what to do about settings that can lose locks, and [`RedisBackend::findings`] returns them. A server that cannot keep
//! locks at all is rejected: one before version 7.0, a node of a Redis Cluster, a Sentinel, a replica. (A replica is tried
//! again until the connect timeout ends, as it may be promoted. If a primary becomes a replica, the backend reconnects and
//! looks its address up again.)
//!
//! - `maxmemory-policy noeviction`: any other may evict locks that are held.
//! - `appendonly yes` and `appendfsync always`, or a crash may lose locks. With `everysec`, start a crashed server only
//!   after the longest TTL has passed.
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
//!     +del +eval +evalsha +exists +get +hdel +hexists +hget +hincrby +hset +pexpire +pexpireat
//!     +ping +pttl +publish +pubsub|numsub +set +subscribe +time +zadd +zcard +zcount +zrange
//!     +zrangebyscore +zrem +zrevrange +zrevrangebyscore +zscore
//! ```
//!
//! Also useful: `+script|load`, or the first request of each kind takes two round trips; `+info` and `+config|get`, or the
//! settings cannot be checked; `+client|setinfo`, or `CLIENT LIST` does not show the library. They are tried once for each
//! connection, and appear in `ACL LOG` if they are rejected ([`Checks::Off`] does not try the settings).
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use backend::RedisBackend;
pub use config::RedisConfig;
pub use fencing::{Fence, Fenced};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use lock_tls::Tls;
pub use probe::{Checks, Finding};
pub use redis;

mod acquire;
mod backend;
mod claims;
mod client;
mod config;
mod connection;
mod error;
mod fencing;
mod hold;
mod names;
mod probe;
mod protocol;
