//! polylock's quorum backend: one lock over several independent servers, of which a majority has to agree.
//!
//! ```
//! # use std::sync::Arc;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::backend::DistributedLock;
//! use lock_core::{Locker, MemoryBackend};
//! use lock_quorum::QuorumBackend;
//!
//! // Three servers; in production, three Redis, or any others.
//! let servers: [MemoryBackend; 3] = std::array::from_fn(|_| MemoryBackend::new());
//! let nodes = servers.clone().map(|server| Arc::new(server) as Arc<dyn DistributedLock>);
//! let locks = Locker::new(QuorumBackend::new(nodes)?);
//!
//! let guard = locks.lock("orders/42").acquire().await?;
//! servers[0].set_available(false); // one of them dies
//! assert!(locks.lock("orders/42").try_acquire().await?.is_none()); // and the lock is held
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # When to use it
//! One server with [fencing](lock_core#what-no-lock-service-can-promise) is enough for most: it is simpler, faster, and a short
//! outage only delays whoever wants a lock. Use a quorum if acquires must go on while a server is down, and no server is there
//! that replicates by itself, such as a ZooKeeper ensemble. The nodes must be *independent* servers. A primary and its
//! replica are one server.
//!
//! With `N` nodes a majority of `N / 2 + 1` has to agree: 2 of 3, 3 of 5. An even number of nodes survives no more failures
//! than one node less.
//!
//! [The page on quorums](https://github.com/polylock/polylock/blob/main/docs/quorum.md) says how to choose the nodes, the TTL and
//! the persistence, and which tests show what a quorum survives.
//!
//! # Guarantees
//! - **Exclusion.** A hold counts as long as a majority of all configured nodes votes for it. Two majorities share a node, and a
//!   node votes for one holder at a time. Each vote has a lease of its own, counted from before its request was sent. The
//!   hold's lease ends when the first vote ends without which there is no majority.
//! - **Tokens grow** with each hold of a name, whichever nodes vote for it, and whatever their clocks say. The token is the one
//!   that a majority of votes is at most, and a majority is at least. If all nodes of an odd number answer, it is the median
//!   of their tokens, and needs no further request. Otherwise lower votes are raised first. While a hold lasts, all its votes
//!   are raised to its token, so that any minority of the nodes may forget it.
//! - **One of simultaneous tries wins.** The nodes of a name have an order, by their addresses, or by the list if a node has
//!   none. The first node that is reached decides, the *anchor*: whoever does not get its vote gives the others back. Waiters
//!   wait in its queue. So there is no random back-off, and a hundred waiters cost about as many requests per grant as three.
//! - **A silent node** costs at most the [patience](QuorumConfig::with_patience), once. A waiter in its queue notices after its
//!   own patience and another one. After that the node is asked last for half a TTL, 15 s at most. A node that is slower than
//!   the others by far is not waited for, unless it is the anchor of a contended name.
//! - **A client that cannot reach a majority delays no other client.** If a majority is silent for it, it gives its votes back after the
//!   patience, and asks the silent nodes first from then on.
//! - **A waiter looks at all nodes** after its patience, then less often. If the vote of its anchor is of a holder without a
//!   majority, it goes on without the anchor.
//! - **Renewal** renews all votes at once, and asks for new votes at nodes that forgot theirs, or never voted. It displaces
//!   nobody. If more nodes than a minority say that the hold is not theirs any more, it is lost.
//! - **A release reaches all nodes** that were ever asked, also those that did not answer. What a dropped acquire left is
//!   undone in the background.
//! - **A status** shows whoever has the votes of a majority. If no holder has, but one may have it with the nodes that do not
//!   answer, it waits for their answers for a second more, and meanwhile asks the others again. Then it fails: a lock is free only if
//!   nobody can have a majority. An observer of an election asks again when a node reports a change, and within 5 s. At a node, the
//!   label of a vote ends with a mark of its hold, as in `web-3:4711 #1f2e3d4c`. So holders with the same label are told apart. A
//!   reader's token is shown if a majority of the nodes shows the same one: some nodes show the token with which the reader was
//!   admitted, though it was raised since.
//! - **Errors name every node** with its cause: see [`NodeErrors`].
//!
//! # What it does not survive
//! - A node that restarts without its data votes again, although its old vote still counts elsewhere. Have such nodes wait for
//!   longer than the longest TTL, or give them persistent storage that is written before they answer. A Redis waits if its
//!   `restart_delay` is set, which a quorum's URL sets for all.
//! - More than a minority of the nodes have forgotten a hold, or missed it. Then the tokens of later holds are larger only while
//!   the dates of the nodes differ by less than that delay. ZooKeeper nodes do not count by dates: with them, set a
//!   [token floor](lock_core::Locker::with_token_floor) above all tokens that were granted.
//! - A process that is paused for longer than its lease may act before it notices. As with any lock service, only the fencing
//!   token protects then.
//! - Clocks that run more than 5 % apart end votes at the servers earlier or later than their holders count.
//! - Processes whose lists differ by more than one node. Then two majorities need not meet. The order of the list does not matter.
//!   When a process connects, it leaves a mark at each node, a hold of a reserved name, and is refused as
//!   [misconfigured](lock_core::ErrorKind::Misconfigured) if the mark of another one says that the two lists, or the two restart
//!   delays, do not go together. A process that shares no node with it at that moment is not seen.
//!
//! # Limits
//! Holds are exclusive or [shared](lock_core::RwLock). Semaphores above 1 are refused: each node counts only the permits that it
//! gave, and two majorities may admit more than the limit. There are no upgradable holds, no
//! [downgrade](lock_core::Guard::downgrade), no passes within a process and no strict order of waiters: the order ends when the anchor
//! does.
//!
//! [`Locker::list`](lock_core::Locker::list) and [`Locker::revoke`](lock_core::Locker::revoke) are `Unsupported`:
//! - A name is held if a majority votes for one holder. A list of one node shows single votes, and a page of several nodes would have to go
//!   on at a different place of each.
//! - Each vote has a token of its own, and the quorum's token is none of those that the nodes compare. A revoke that reached a minority
//!   would leave a hold that lives on and can lose no further node. To end a hold, revoke its votes at a majority of the nodes, each by the
//!   token that the node's own status shows: a vote that is revoked counts as lost, and its node is not asked for another one while the hold
//!   lasts. So the revokes may be any time apart.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::QuorumBackend;
pub use config::QuorumConfig;
pub use error::NodeErrors;

mod acquire;
mod backend;
mod clean_up;
mod client;
mod config;
mod drive;
mod end;
mod error;
mod follow;
mod guarantees;
mod hold;
mod label;
mod late;
mod mark;
mod members;
mod node;
mod probe;
#[doc(hidden)]
pub mod protocol;
mod renew;
pub mod rules;
mod status;
mod terms;
mod votes;
