//! polylock's Redis backend: locks in one Redis (7.0 or newer) or Valkey. Tested on Redis 7.0, Redis 8 and Valkey 9.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_redis::RedisBackend;
//!
//! let locks = Locker::new(RedisBackend::from_url("redis://127.0.0.1")?);
//! let guard = locks.lock("orders/42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! - **Exclusion**, as long as the server keeps what it acknowledged, its clock is not stepped, and nobody else ends
//!   the hold. Redis counts a ttl by its wall clock: a step forward ends holds early, and two may believe. A primary
//!   that fails over to a replica forgets what it had not replicated yet. Then only the fence protects.
//! - **Together with others.** A lock is a plain string key, taken with `SET key value NX PX ttl` inside a script. So
//!   clients of other languages that lock this way and release by comparing the value exclude us, and we them, when
//!   they use prefix and name as the key: `lock("orders/42")` here is `redis.lock("polylock:orders/42", timeout=10)`
//!   with redis-py, which is tested. What they hold has no token, no label, no place in the queue, and wakes nobody: so
//!   meanwhile we ask again.
//! - **One round trip** to acquire a free lock, one to release it; three for one that is waited for, however many wait.
//! - **First come, first served.** A refused acquire takes its place in a queue in the same script. A release offers the
//!   name to the first waiter whose process is there, and tells the second to look when the offer lapses (the
//!   [grace](RedisConfig::with_grace), 100 ms). What bounds how often somebody may be overtaken: the hand-overs within
//!   another process, at most 16 in a row (`Locker::with_hand_overs`); a hold or an offer that *expires*, after which
//!   the name is whose request comes first, as it is after a holder that is no client of ours.
//! - **Somebody is always awake.** A place lasts as long as its ttl would, between three graces and 15 s, and is
//!   refreshed three times in that time; a refresh that finds the name free takes it. A dead waiter is passed over at
//!   once, one that hangs costs a grace, several in a row one refresh, and a holder that crashed its ttl. If an operator
//!   deletes the key of a held lock, its waiters notice at their next refresh: after a third of their ttl, at most 5 s.
//! - **Retries are safe.** An acquire that is repeated gets the same grant for the full ttl; no request ever shortens a
//!   hold. What is sent over one connection is executed in that order; a try that overtakes this process's own release,
//!   because that had to be sent again or to wait for a connection, is asked again after it. When the connection was
//!   replaced meanwhile, whatever ends a hold leaves a tombstone in the fence key for ten minutes, by which an acquire
//!   that comes out of the old connection late is refused (a hold that would be handed over is released for it). One
//!   that is later still is believed by nobody and ends with its ttl.
//! - **The connection comes back by itself**, however long the outage was. Requests fail meanwhile, to be repeated. Each
//!   one has the backend try to connect at once, though not more often than every 50 ms, and fails only after a try that
//!   began after it. A connection on which nothing is heard for the response timeout, although the server was asked, is
//!   replaced. A waiter whose time is up is told of an outage that has lasted for two seconds.
//! - **Any runtime.** The connection lives on the tokio runtime that used it first. If that ends, or nobody drives it, a
//!   request on another runtime gets a connection there: at once, or after half a second.
//! - **Full memory.** A server at its `maxmemory` refuses new locks and new waiters. Those that wait already are granted
//!   the lock, and holds are renewed, handed over and released.
//!
//! # What ends a hold
//! Its release; its ttl, when it is not renewed in time; whoever deletes or overwrites the key; eviction; a server
//! that forgets. Losing the connection ends nothing: the hold goes on until its ttl, suspect meanwhile. The guard learns
//! of an end by its next renewal, a third of the ttl later at most. A fixed lease is never renewed: its guard believes in
//! it for nine tenths of its ttl, unless it is released before.
//!
//! # Fencing
//! A token is the server's time in microseconds, or one more than the last token where that is larger. So it keeps
//! growing after a release, an expiry, a deletion, and after the server has lost all its data, unless its clock is then
//! behind the last token. The last token is kept in a second key until the clock has passed it by an hour: as long as
//! the server keeps its data, only a step back of the clock by more than that could make a token smaller.
//!
//! A resource that lies in a Redis is protected by a [`Fence`]: before its first read, a holder *enters* with its token;
//! from then on whoever holds an older one is refused, reads and writes alike. It takes two scripts, which are there for
//! other clients too ([`Fence::ENTER`], [`Fence::RUN`]). A fence that looks at writes alone would lose updates: two
//! holders may both have read before the older one writes.
//!
//! # Limits
//! - While the holder is no client of ours, waiters ask again, every 5 ms at first and every 50 to 100 ms later on.
//! - When the server's clock is set back, a hold is cut to the longest term that its holder ever asked for, by whoever asks
//!   for the name next; a place to 15 s.
//! - A ttl is from 10 ms to 365 days.
//! - No Redis Cluster and no Sentinel; TLS only when the driver was compiled with it. All keys of a lock lie in one
//!   hash slot already.
//! - A lock's key is prefix and name as they are, its fence is `{KEY}:fence` and its queue `{KEY}:queue`. Only a name with a `}` but without a
//!   hash tag (and, without a prefix, one that begins with `{`) is written in another way: `a}b` as `{a%7Db}:lock`. The
//!   fence of a name with a hash tag is `{TAG}:fence:KEY`. Each backend listens on the channel `PREFIXinbox:ID`.
//! - A process that ends without its destructors leaves a place of at most 15 s, and its hold for the ttl.
//! - A hold survives any round trip below 0.4 of its ttl, if that is below the response timeout too
//!   ([5 s](RedisConfig::with_response_timeout)), and if a connection, which takes about five round trips, is made within
//!   the connect timeout ([5 s](RedisConfig::with_connect_timeout)).
//! - If nobody drives the runtime of the connection, a hold with a ttl below 2 s may expire before another runtime has
//!   taken over.
//! - Behind more than 500 dead places the release looks for a waiter in several steps. A request that comes in between
//!   may get the lock first.
//!
//! # Server settings
//! They are looked at whenever a connection is made, as far as the user may see them (`INFO`, `CONFIG GET`):
//! [`Checks`] says what becomes of those by which locks are lost, [`RedisBackend::findings`] has them. A server that
//! cannot keep locks at all is refused: one before version 7.0, a node of a Redis Cluster, a Sentinel, a replica. (A
//! replica is asked again until the connect timeout ends, as it may be promoted. A primary that becomes one is left, and
//! its address looked up anew.)
//!
//! - `maxmemory-policy noeviction`: any other may evict locks that are held.
//! - `appendonly yes` and `appendfsync always`, or locks may be forgotten in a crash. With `everysec`, start a crashed
//!   server only after the longest ttl has passed.
//! - Keep its clock by slewing, never by steps.
//!
//! # Permissions needed
//! The whole conformance suite runs as this user, here with the default prefix; [`RedisConfig::acl_rules`] gives the
//! rules for any configuration (a database other than 0 has to be selected).
//!
//! ```text
//! ACL SETUSER app reset on >PASSWORD
//!     ~polylock:* ~{polylock:* ~{*}:fence:polylock:* ~{*}:queue:polylock:* &polylock:*
//!     +del +eval +evalsha +exists +get +pexpire +pexpireat +ping +pttl +publish +pubsub|numsub
//!     +set +subscribe +time +zadd +zcount +zrangebyscore +zrem +zrevrange +zrevrangebyscore
//!     +zscore
//! ```
//!
//! Also of use: `+script|load`, or the first request of each kind takes two round trips; `+info` and `+config|get`, or
//! nothing is known of the settings; `+client|setinfo`, or `CLIENT LIST` does not show the library. They are tried once
//! for each connection, and stand in `ACL LOG` where they are refused ([`Checks::Off`] does not try the settings).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::RedisBackend;
pub use config::RedisConfig;
pub use fencing::{Fence, Fenced, Stale};
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
