//! polylock's ZooKeeper backend: locks in a ZooKeeper server or ensemble, version 3.5.3 or newer.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_zookeeper::ZooKeeperBackend;
//!
//! let locks = Locker::new(ZooKeeperBackend::from_url("zookeeper://app:secret@zk1,zk2,zk3/orders")?);
//! let guard = locks.lock("42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! - **Exclusion**, as long as the ensemble keeps its quorum's promises and nobody else deletes a hold's node. Heartbeats
//!   prove that a hold is alive: twelve `sync` requests in a session timeout, which only a server that is connected to its
//!   leader can answer. A follower reports its clients to its leader only every half tick. So an answered heartbeat renews
//!   the leases from before an *earlier* one was sent: one that was answered at least a quarter of the session timeout
//!   before this one was sent, which is half a tick or more. On a standalone server, an answer renews them from before
//!   its own heartbeat was sent. A leader that is cut off from its quorum answers a `sync` until it steps down. Then two
//!   clients may count as holders for up to `syncLimit` ticks, and only the fencing token protects. This takes
//!   followers that elect another leader sooner than that, for example because both were restarted: measured up to 8 s, with
//!   `syncLimit` times `tickTime` at 10 s. With `heartbeat=write` such a leader answers no heartbeat, and the first hold was
//!   lost 2 s before the next grant, see [`HeartbeatKind`].
//! - **First come, first served.** Waiters queue at the server. Each watches the one before it, so that a release wakes
//!   one. A waiter keeps its place over a reconnect, but not over the end of its session. Before the first waiter of another
//!   process, the waiters of the holder's process get the lock a bounded number of times: by a pass, which takes no request and
//!   wakes nobody.
//! - **One round trip** to acquire a free lock, and one to release it. If nobody has used the name before or for about a minute, the
//!   lock's directory is missing, and the acquire takes two. A waiter that is woken takes one more, to make sure that its turn has
//!   come. A pass takes none.
//! - **Retries are safe.** A node carries its request's id, and counts only while the asking session owns it. If an answer
//!   got lost, the node is found by that id after a `sync`, and adopted or deleted. A delete is repeated until it is
//!   answered or the session has ended.
//! - **A session reconnects by itself**, however long the outage was: the same session if the server still has it, else
//!   a new one. Each tries to connect at most every 50 ms. After a failure it waits at most 250 ms while a request waits for
//!   it; otherwise at most a twelfth of the session timeout or 2 s, whichever is shorter, and with jitter twice that. An
//!   attempt at a server that does not answer at all lasts 0.55 session timeouts. With several servers, all are probed after 0.3 s.
//!   Then only those are tried that answer within 0.3 s of the first answer. If a connected server falls silent, that is noticed after 0.55 session
//!   timeouts. The holds outlive it if another server answers in the time that is left to them. A server that is just starting leaves some
//!   connections without an answer (seen with 3.8.0), so a hold may be suspect for as long after a restart.
//! - **One server of several may be wrong**, such as one that is no ZooKeeper: the others are used. Only if none of them serves does `connect`
//!   fail for that reason.
//! - **Outages differ from contention.** A request that cannot be sent or is not answered fails as
//!   [`Unavailable`](lock_core::ErrorKind::Unavailable), with the reason as its [cause](lock_core::Error::cause).
//!
//! # Modes
//! A name is held exclusively, by [readers](lock_core::Locker::rw_lock), or by [permits](lock_core::Locker::semaphore). All of them
//! wait in one queue, in the order in which they came.
//! - The name of a node says how it asks: `_c_<uuid>-lock-<sequence>`, `_c_<uuid>-read-lock-<sequence>`, or
//!   `_c_<uuid>-p2.10-lock-<sequence>` for two permits of ten. Nodes of Curator's `InterProcessMutex` and of older versions of
//!   this crate count as writers. They wait for all nodes before theirs, in whatever mode.
//! - A waiting reader watches the last node before it that is no reader's, so that readers enter together. Of those who wait for
//!   permits, two watch the directory, and each of the others watches the second waiter before it.
//! - A reader or a holder of permits writes its own node before its grant, unless nobody has come or gone since the node was made. So
//!   a grant after waiting takes one more round trip, and so do some grants while several come at once.
//! - A [downgrade](lock_core::Guard::downgrade) is one read and one write of the holder's node. It keeps place and token.
//! - There are no upgradable readers. Each waiter decides by a list of its own whether it has the lock. An upgrade goes before all
//!   who wait, and could not know which readers behind it had decided before it asked.
//! - If a process hangs after its request for permits was admitted and before it has written its node, those behind it may wait until
//!   its session ends.
//!
//! # What ends a hold
//! - Its release.
//! - The end of its session. A backend has a few sessions, and each renews its holds. The server ends a session when it has
//!   received nothing for the session timeout; the count starts again after a restart or a change of leader.
//! - A reconnect at which the server grants its session another timeout, see [below](#server-settings).
//! - Anyone who deletes the node.
//!
//! If a process dies, its holds end within the session timeout, which is at most their ttl. A fixed lease is deleted when its ttl is over.
//!
//! A guard becomes suspect when its connection breaks, or when a heartbeat has been unanswered for half of the session
//! timeout. It is lost when nine tenths of a session timeout have passed on its own clock, when the session has ended, or
//! when its node is gone. It learns of a deleted node within a twelfth of the session timeout after the grant or a
//! reconnect, and at once after that. A guard that was lost while the session recovered stays lost, and its node is
//! deleted.
//!
//! [`watch_state`](ZooKeeperBackend::watch_state) reports whether the sessions are connected, suspended or lost.
//! [`Locker::shutdown`](lock_core::Locker::shutdown) closes the sessions that carry nothing, and ends attempts to connect
//! for which no request waits. A process that exits without it leaves its sessions to their timeout.
//!
//! # Minimum hold
//! A [minimum hold](lock_core::Lock::hold_at_least) has a second node, the kept node: it is persistent, and outlasts session and process.
//! Its name is `_c_<uuid>-keep-lock-<sequence>`, with the sequence of the holder's node, whose place in the queue it takes. It is made
//! just before the grant is reported, which takes one more round trip. A release within the minimum writes the rest of its time into
//! it, and deletes the holder's node in the same transaction. A release after the minimum deletes both.
//! - A kept node is over when its time has passed since its last write, by the clock of ZooKeeper's leader. The holder's process
//!   deletes it then, if the session of the release is still there. Otherwise the next acquire of the name does, or who waits next.
//! - If nobody asks for the name again, another process deletes the kept node and the server its directory: a process that is granted
//!   a minimum hold looks through up to 4,096 directories of the root path in the background, 64 in a second, from a random one on. It
//!   does so at most every two minutes.
//! - The [status](lock_core::Locker::status) shows such a name as free once its kept node is over. To learn the leader's time it writes
//!   the directory of a kept name, and leaves its data as it is. Without the permission for that, the name shows as held.
//! - A name is granted too early only if the leader's clock is set forward. A waiter that was there before the kept node was written
//!   counts by its own clock, and adds a twentieth of the time.
//! - The clocks of two leaders are not compared. So if a name is asked for after an election, the time of its kept node begins
//!   anew: the name is free up to one minimum too late. The same goes for a clock that was set back.
//! - If the holder's process dies, the minimum counts from just before the grant was reported.
//! - Curator, kazoo and older versions of this crate wait for a kept node like for a holder before them, but do not delete it. If the
//!   holder's process has ended and one of them is the next in the queue, all behind it wait until another request of this version
//!   comes.
//! - If a session ends after a grant that nobody received, its kept node is deleted by the abandoned request's process. If that has ended
//!   too, the name stays taken for the minimum.
//! - A hold that has or wants a minimum is not passed on within the process: it is released, and the next waiter asks the server.
//!
//! # Forced release
//! [`Revoke::Now`](lock_core::backend::Revoke::Now) deletes the holder's node, and that of its minimum hold. If the server does not know the
//! token yet, it waits for the holder to write it: for four fifths of the connect timeout at most, and fails as
//! [`Unavailable`](lock_core::ErrorKind::Unavailable) after that. It cannot revoke holds of other libraries and of older versions, which write none.
//! The former holder notices as of any node that somebody deletes: see above.
//!
//! [`Revoke::AtLeaseEnd`](lock_core::backend::Revoke::AtLeaseEnd) is `Unsupported`, for two reasons:
//! - The server does not know when the lease ends. It knows that a session has ended, but not its timeout, nor the end of a fixed lease.
//! - A lease is renewed by the heartbeats of its session, and these do not look at the hold's node. A holder learns of the node's end by a
//!   watch, which ends with each connection. If its connection broke again and again, heartbeats would renew the lease in between, and the
//!   hold would outlast any time that the name was kept for.
//!
//! # Fencing
//! A token is `zxid * 16 + k + offset`:
//! - `zxid` is the id of a transaction: of the last change of the lock's queue before the grant, or of a write of the holder's
//!   node. It grows over releases, expiries, deletions of the lock, restarts and elections.
//! - `k` is 0 for a grant. The numbers up to 15 are for holds that are passed on within a process.
//! - `offset` is the token offset of the root path.
//!
//! So `(token - offset) >> 4` is the transaction id. There are tokens for 2^27 elections. A grant writes nothing for its token.
//!
//! Tokens start again when the ensemble has lost all its data. **If an older backup is restored, tokens repeat**: the
//! transaction ids go on from the backup's. Then set a [token floor](lock_core::Locker::with_token_floor) above all tokens that
//! were granted, and end all processes that lock before the restore: sessions of the backup whose processes still run go on, and keep what they
//! held then, although it was released since.
//!
//! The offset is 0 until a [token floor](lock_core::Locker::with_token_floor) is above all tokens. It is then raised for all
//! locks of the root path, and never lowered. It stands as decimal text in the persistent node `%token-offset` under the
//! root path. A grant reads it, until a session has found it unchanged eight times in a row: then the session watches the node, and
//! creates it if it is missing. A session that cannot do so tries again after a hundred such grants. If somebody deletes this node,
//! tokens may become smaller: then set the floor again. If it has other data, every acquire fails as
//! [`Misconfigured`](lock_core::ErrorKind::Misconfigured), and the data stays as it is.
//!
//! A quorum can have this backend as one of its servers. If tokens have not reached the token that a request of the quorum asks for,
//! the offset is raised for it, and when the quorum raises a hold's token as well. Beside servers whose tokens follow a clock, that
//! is at almost every grant, which takes up to four more round trips then. So give a quorum a root path of its own.
//!
//! All clients of a root path must read the offset, once it is not 0. Clients of a version without token floors do not.
//!
//! # Limits
//! - A ttl is at least the session timeout, 10 s by default. One hold cannot be extended alone.
//! - A hold survives a round trip of 0.4 session timeouts at a standalone server (measured: up to 0.48), and of 0.25 in an
//!   ensemble (simulated: up to 0.27), where the proof takes two round trips. A standalone server is recognised by its
//!   answer to `srvr`, if it is the only one in the configuration. Until that answer has come, and where a proxy does not let it
//!   through, the limit is that of an ensemble. If the server grants another session timeout than the
//!   configured one, both limits are lower.
//! - Authentication by the scheme `digest`, by SASL with the mechanism `DIGEST-MD5`, and by client certificates (`x509`) alone. SASL
//!   needs the feature `sasl`; Kerberos (`GSSAPI`) is not supported, and user and password are tested in ASCII alone. TLS needs the
//!   feature `tls`. No read-only servers.
//! - A client of the driver cannot be passed in: it would send a request after its caller has given up, and whoever shares its session
//!   could end the holds. A [`Fence`] does use the application's own client.
//! - In a node's path, all characters of a name but letters, digits and ``-_~:@=+,.`` are written as `%XX`.
//! - Two other clients can share a queue with this crate, if they lock the directory of the name. Curator's
//!   `InterProcessMutex` needs nothing more. kazoo's `Lock` must be made with `extra_lock_patterns=["-lock-"]`: without it,
//!   kazoo does not count our nodes, and both hold the lock. After 2^31 requests for one lock the server's counter becomes
//!   negative or stands still, and both go on by the order of the text, so that two may hold the lock. This crate grants
//!   nothing to a node that has the sequence of another. Delete the lock's directory before that, while nobody uses it.
//! - A token floor is at most 2^63 - 2^56, so that 2^20 elections to come have room. When an offset was raised, the next
//!   acquire of each client takes one or two more round trips.
//! - The [status](lock_core::Locker::status) shows a holder's token only if the server knows it. A hold that lasts longer than a
//!   twelfth of the session timeout writes its token into its node, which takes one write. Before that, the server knows the token of a
//!   holder that has written its node since it was admitted, as the leader of an election does, and of an exclusive one if nobody
//!   has joined or left the queue since.
//! - A [list](lock_core::Locker::list) reads the names of all directories under the root path for each page. It fails as
//!   [`Denied`](lock_core::ErrorKind::Denied) at a directory that the configured user may not read.
//! - A session runs on one runtime: that of its first use. If that runtime ends, or is not driven for 0.75 s while a
//!   request from another runtime waits, the session is ended, and its holds and places are lost. The next request gets a
//!   new session on its own runtime.
//! - When a session ends, one transaction names all its nodes. If it is too large, the servers of an ensemble cannot read
//!   it and never serve again. So a session carries 512 KiB of node paths: about 2,700 holds and waiting names of 100 bytes.
//!   A process has one session while it uses up to eight names at a time. With more names it has four, over which names are
//!   spread by their hash. A name whose session is full gets the next one with room. Beyond
//!   [`sessions`](ZooKeeperConfig::with_sessions), 8 by default, an acquire fails as
//!   [`Unavailable`](lock_core::ErrorKind::Unavailable).
//! - A session sends twelve heartbeats in a session timeout, also when it has no hold. With timeouts of 10 s, 300 sessions
//!   cost their follower 6 % of a core, and the leader 2 %.
//! - A process that forks must fork before its first connection to ZooKeeper. The driver has one I/O thread for each
//!   process, and a forked child does not have it: after that, the child can never connect.
//!
//! # Server settings
//! - `session_timeout` at least `syncLimit` times `tickTime` (10 s by default): a follower that is cut off from its
//!   leader goes on answering for that long. And at least four ticks: with two, a follower on an overloaded machine reported a session
//!   too late once, and two guards counted as held.
//! - `minSessionTimeout` (two ticks by default) not above the ttls in use, and not below two ticks; `maxSessionTimeout` not
//!   below `session_timeout`. If the server grants another timeout than `session_timeout`, polylock logs it once, by
//!   `tracing` at level `WARN` under the target `polylock`. A ttl must then be at least the granted one.
//! - These two and `tickTime`, from which they follow by default, the same on all servers of an ensemble, and changed only while no locks
//!   are held. A server grants the timeout anew at each reconnect, and counts by it from then on. If it is another one than before, the
//!   session is ended at once, and its holds are lost. If the answer to such a reconnect gets lost, the client does not know: with a
//!   shorter timeout, two clients may count as holders until it reconnects, and only the fencing token protects.
//! - `maxClientCnxns` (60 for each address by default) above the number of sessions of one machine: one, four or up to
//!   `sessions` for each process, see the limits. Each has one connection, and for a moment a second one, to ask what
//!   kind of server there is.
//! - The server removes the directories of unused locks, every minute by default
//!   (`znode.container.checkIntervalMs`).
//! - `srvr` among the commands of `4lw.commands.whitelist`, as it is by default. Without it, a standalone server counts as
//!   a member of an ensemble.
//! - For TLS, `secureClientPort` and `serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory`. A client certificate is an
//!   identity by the provider `x509`, which is the default of `ssl.authProvider`.
//!
//! # Permissions needed
//! `READ` and `CREATE` on the root path, also for a token floor. If the root path does not exist: `CREATE` on its parent.
//!
//! All nodes are accessible to the user in the configuration alone, or to the subject of its client certificate; root path and
//! parents included if the backend creates them. Without either, `acl=open` must be set: then anyone who can reach the server can end any hold.
//!
//! Everybody may read the number in `%token-offset`. Do not take this permission away while clients run: a server may tell a client
//! nothing of a node that it may not read, and that client's tokens could become too small.
//!
//! # Change of a password
//! With the scheme `digest`, an identity contains the password, and nodes belong to the identity that made them. So a client with a
//! new password alone has no access. To change it while locks are held:
//! 1. Give all clients the new password, and the old one as [`previous_password`](ZooKeeperConfig::with_previous_password), one after
//!    the other. Both identities have access to what they make, so they share locks with those that have the old password alone.
//! 2. When no client has the old password alone any more, call [`rewrite_acls`](ZooKeeperBackend::rewrite_acls) once, from a client
//!    with both. This gives both access to the root path and to directories that were made before.
//! 3. Give the clients the new password alone.
//! 4. When no client has the old password any more, call `rewrite_acls` once more, from a client with the new one alone. This ends the
//!    access of the old one.
//!
//! A process need not be restarted for that: it can read both passwords from [`ZooKeeperConfig::with_credentials`]. A connection proves
//! the passwords of the moment when it was made, so after a change of what is read the connections must be made anew: restart the servers
//! one after the other, or the processes. Make a new backend to call `rewrite_acls`. Sessions and their holds outlive that.
//!
//! If an application has its own nodes in the tree, or the root path was made by an administrator, change their ACLs as well. An
//! identity by SASL or by a certificate contains no password, so that no ACL has to be changed. But with SASL's DIGEST-MD5, a server has one
//! password for each user. A session that reconnects to a server with another password than its client's is refused. It tries again as long
//! as its holds may last, and then ends. The nodes of its holds may stay for one more session timeout. So change such a password at the
//! servers and at the clients in less than the session timeout, or while no locks are held.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use backend::ZooKeeperBackend;
pub use config::{HeartbeatKind, ZooKeeperConfig};
pub use fence::{Fence, Fenced};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use lock_tls::Tls;
pub use state::{ConnectionState, StateWatch};
pub use zookeeper_client;

mod acl;
mod acquire;
mod backend;
mod claims;
mod client;
mod config;
mod connection;
mod error;
mod fence;
mod follow;
mod hold;
mod leftover;
mod list;
mod names;
mod probe;
mod protocol;
mod revoke;
mod server_id;
mod state;
mod status;
