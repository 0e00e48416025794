//! polylock's ZooKeeper backend: locks in a ZooKeeper server or ensemble, version 3.5.3 or newer.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_zookeeper::ZooKeeperBackend;
//!
//! let locks = Locker::new(ZooKeeperBackend::from_url("zookeeper://zk1,zk2,zk3/orders")?);
//! let guard = locks.lock("42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! - **Exclusion**, as long as the ensemble keeps its quorum's promises and nobody else deletes a hold's node. What a
//!   guard believes in is proven by heartbeats: `sync` requests, twelve in a session timeout, which only a server that is
//!   connected to its leader can answer. Since a follower tells its leader of its clients only every half tick, an
//!   answered one counts from before an *earlier* one was sent: one that was answered at least half a tick before this
//!   one went out. An answer of a standalone server counts from before its own heartbeat was sent. A leader that is cut
//!   off from its quorum answers until it steps down; for so long only the fence protects.
//! - **First come, first served.** Waiters queue at the server; each watches the one before it, so that a release wakes
//!   one. A waiter keeps its place over a reconnect, not over the end of its session.
//! - **One round trip** to acquire a free lock, one to release it. A waiter that is woken takes one more, by which it
//!   makes sure that its turn has come and that its session lives.
//! - **Retries are safe.** A node carries its request's id, and counts only while it belongs to the session that asks. A
//!   request whose answer got lost is looked for by that id after a `sync`, adopted or deleted; a delete is repeated
//!   until it is answered or the session has ended.
//! - **The session comes back by itself**, however long the outage was: the same one if the server still has it, else a
//!   new one. It tries to connect at most every 50 ms, and after a failure rests for at most 250 ms while a request waits
//!   for it; else for at most a twelfth of the session timeout or 2 s, whichever is shorter, and with jitter twice that.
//!   An attempt at a server that does not answer at all lasts for 0.55 session timeouts.
//! - **Outages are told from contention.** A request that cannot be sent or is not answered fails as
//!   [`Unavailable`](lock_core::ErrorKind::Unavailable), with the reason as its source.
//!
//! # What ends a hold
//! Its release; the end of the session, which is one for all holds of a backend: the server ends it when it has heard
//! nothing for the session timeout, counted anew after a restart or a change of leader; whoever deletes the node. A hold
//! does not end with its ttl, but with the session timeout, which is at most as long: the session renews all its holds.
//! A fixed lease is deleted when its ttl is over.
//!
//! A guard is suspect from the moment when its connection breaks or a heartbeat has been unanswered for half of the
//! session timeout. It is lost when nine tenths of a session timeout are over by its own clock, when the session is known
//! to have ended, or when its node has gone: of that it learns within a twelfth of the session timeout after the grant or
//! a reconnect, and at once after that. One that was lost while the session recovered stays lost, and its node is deleted.
//!
//! # Fencing
//! A token is the id of the ensemble's transaction that created the node (`czxid`), or, where the lock's directory was
//! written later than that, of a write to the directory. It grows over releases, expiries, deletions of the lock and
//! restarts. It starts again when the ensemble has lost all its data.
//!
//! # Limits
//! - A ttl is at least the session timeout, 10 s unless configured. One hold cannot be extended alone, and there is no
//!   minimum hold.
//! - A hold survives a round trip of 0.4 session timeouts at a standalone server (measured: up to 0.48), and of 0.3 in an
//!   ensemble (measured: up to 0.31), where the proof takes two round trips. A standalone server is known by its answer
//!   to `srvr`, if it is the only one in the configuration. If the server grants another session timeout than the one
//!   asked for, both limits are lower.
//! - No TLS, and no authentication but `digest`. No read-only servers.
//! - A name is written into its path with all but letters, digits and ``-_~:@=+,.`` as `%XX`. The queue is read as
//!   Curator's `InterProcessMutex` writes it, so that its nodes and ours wait for each other; a directory written by
//!   hand makes later tokens jump.
//! - The session runs on one runtime: that of its first use. If that ends, or nobody drives it for 1.5 s while a request
//!   from another runtime waits for it, the session is ended, and its holds and places are lost. The next request gets a
//!   new session on its own runtime.
//! - A process that forks must fork before its first connection to ZooKeeper. The driver has one I/O thread for each
//!   process, and a forked child does not have it: after that, the child can never connect.
//!
//! # Server settings
//! - `session_timeout` at least `syncLimit` times `tickTime` (10 s by default): a follower that is cut off from its
//!   leader goes on answering for that long. It must be three ticks or more, except with a single server.
//! - `minSessionTimeout` (two ticks by default) not above the ttls in use; `maxSessionTimeout` not below
//!   `session_timeout`.
//! - `maxClientCnxns` (60 for each address by default) above the number of processes on one machine. Each has one
//!   connection, and for a moment a second one, to ask what kind of server there is.
//! - The server removes the directories of unused locks, every minute by default
//!   (`znode.container.checkIntervalMs`).
//! - `srvr` among the commands of `4lw.commands.whitelist`, as it is by default. Without it, a standalone server counts as
//!   a member of an ensemble.
//!
//! # Permissions needed
//! `READ` and `CREATE` on the root path, or, where it does not exist, `CREATE` on its parent. With credentials all nodes
//! are made accessible to that user alone. Without credentials, anyone who can reach the server can end any hold.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::ZooKeeperBackend;
pub use config::ZooKeeperConfig;

mod acquire;
mod backend;
mod claims;
mod client;
mod config;
mod connection;
mod error;
mod hold;
mod names;
mod probe;
mod protocol;
