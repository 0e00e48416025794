//! Models of the protocols: everything that can happen within small bounds, in every order, on the very functions
//! ([`lock_core::backend::rules`]) that the memory backend calls, and that the scripts and statements of the servers
//! agree with (`../tests/all/differential.rs`).
//!
//! | Model | What happens | What it leaves out |
//! |---|---|---|
//! | [`lease`] | pauses, expiry, late, lost, repeated and overtaking messages, clocks that lag or are set back, a server that forgets, the protected resource | waiting |
//! | [`queue`] | entries, offers, confirms, the stand-by, waiters that hang, die, leave or are cut off, lost wake-ups, names that are kept, a clock that is set back | late requests |
//! | [`modes`] | readers, writers and permits in one queue, upgrades, downgrades, holders that expire each by itself, waiters that hang or leave; late and repeated requests | lost messages of the server, a clock that is set back |
//! | [`acquire_all`] | several names at once: tries, what is given back, waiting in order, losses, clients that give up | time |
//! | [`joins`] | readers that join the shared hold of their process, and a writer elsewhere | more than one other process, late requests but the release |
//! | [`passes`] | blocks of reserved tokens, a release under way, late renewals, holds that end in a block, a clock that is set back, a server that loses its data | who waits at the server |
//! | [`session`] | a ZooKeeper session at a follower that is cut off from its leader; a standalone server that becomes a follower | more than one client |
//! | [`postgres_lease`] | statements that wait for a row and see an older queue, tombstones, late requests, crashes that undo entries | time |
//! | [`tokens`] | tokens in a row that may be rolled back | time |
//! | [`token_offset`] | ZooKeeper's tokens by zxid and above a floor, passes, restarts, while nodes and directories are deleted | time, unanswered writes |
//! | [`zookeeper_modes`] | ZooKeeper's queue of readers, writers and permits: old lists, watches that tell once, downgrades, sessions that end, lost answers; tokens by zxid | time, token floors, restarts |
//! | [`zookeeper_minimum`] | ZooKeeper's minimum holds: elections that bring another clock, a clock that is set back, old reads, holders that die, those who come and leave | the lease, clocks that run at different rates |
//! | [`quorum`] | several servers that vote, each with its own clock, and forget; late, lost and stuck messages, pauses, cuts | more than one name, modes |
//!
//! All but the quorum search every order of events. The quorum has too many: it is simulated, in histories that are decided by
//! their seeds, and its own mutants have to be caught by some of them.
//!
//! Four servers are modelled. That of [`modes`] is the lock server of the memory backend
//! ([`NameState`](lock_core::memory::NameState)), with offers that a waiter has to confirm. The lease and the queue share one
//! [`server`] of its own: it follows Redis's scripts down to clocks that are set back and to names that are kept, which the memory
//! backend does not need, and a differential test compares its whole state with theirs. [`postgres_lease`] has
//! the tables of `lock-postgres`. ZooKeeper is no lock server: its models keep a directory of nodes.
//!
//! The properties are named in [`properties`]. A model that shows nothing is caught in two ways: every model must reach
//! two holds that were done (the session: belief past its first timeout), and every mutant ([`mutant::Mutant`]) must
//! break the property that it is said to break. The shortest trace to that is written in `traces.md`, and below;
//! `tests/all/models.rs` finds the same trace each time.
//!
//! # What the models found
//! In drafts of the queue, before it was written, and in what was there:
//! - A stand-by that leaves has to name the next one, or a hung head costs a whole refresh instead of the grace.
//! - A waiter that leaves and finds the name free has to say so, to the first *two* entries: it may have been the only
//!   one that was to look. It must not offer the name instead, since the offer goes to the head that has just let one
//!   lapse, and costs the others a second grace.
//! - A name that is kept until a moment of the server's clock needs repair as a hold does when that is set back.
//! - Who comes while a name is reserved for one ahead has to look when that ends, not a grace later.
//! - Refreshes alone keep somebody awake: without a stand-by too, a free name is granted within the grace and one
//!   refresh. What the stand-by does is to make that one grace.
//! - A heartbeat that was answered proves an earlier one only if half a tick lies between that one's *answer* and its
//!   own sending: half a tick between the sendings is not enough, since both may be held up together.
//! - An upgrade that is given up while its answer is under way may have been granted. If its abandon ended that hold, the client
//!   would read on while somebody else writes. So the abandon puts back the hold that the upgrade replaced.
//! - An upgrade has to retire the id of the hold that it replaces: a late repeat of its acquire would take the name for nobody. Only
//!   the abandon of the upgrade revives it, and not if it was released meanwhile.
//! - A request fits only together with all requests before it, and not with the holders alone: else a reader would pass a writer
//!   that is about to take a free name.
//! - A reader that is admitted beside a downgraded hold has to write its node for its token, even if nobody has come or gone since its
//!   node was made: the grant of that hold may be based on the creation of the reader's node.
//! - A reader has to look whether the writer that it watches was downgraded, even if it was not the first in the reader's list: that
//!   list may be older.
//! - A row lock's token that is rolled back is granted again if the server's clock is set back after that, or stands
//!   still: both are outside the failure model.
//!
//! # Traces
#![doc = include_str!("traces.md")]
#![forbid(unsafe_code)]

pub mod acquire_all;
pub mod check;
pub mod id;
pub mod joins;
pub mod lease;
pub mod modes;
pub mod mutant;
pub mod passes;
pub mod postgres_lease;
pub mod properties;
pub mod queue;
pub mod quorum;
pub mod request;
pub mod resource;
pub mod server;
mod server_rules;
pub mod session;
pub mod time;
pub mod token_offset;
pub mod tokens;
pub mod zookeeper_minimum;
pub mod zookeeper_modes;
