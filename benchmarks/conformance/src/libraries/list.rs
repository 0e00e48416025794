//! All libraries, and what each of them claims.

use super::{Language, Library};
use crate::claims::Claim::*;
use crate::view::Store;

pub(crate) const ALL: &[Library] = &[
    Library {
        name: "redis-py",
        lock: "redis.lock.Lock",
        language: Language::Python,
        store: Store::Redis(""),
        claims: &[
            (Answers, "`release` is a call"),
            (
                Tries,
                "`acquire`: \"If `blocking` is False, always return immediately\"",
            ),
            (
                Waits,
                "`Lock`: \"`blocking` indicates whether calling `acquire` should block until the lock has been acquired\"",
            ),
            (
                Limits,
                "`acquire`: \"`blocking_timeout` specifies the maximum number of seconds to wait\"",
            ),
            (Expires, "`Lock`: \"`timeout` indicates a maximum life for the lock\""),
            (Extends, "`extend`: \"Adds more time to an already acquired lock\""),
            (
                Tells,
                "`release` raises `LockNotOwnedError`: \"Cannot release a lock that's no longer owned\"",
            ),
            (AnyName, "`Redis.lock`: a lock at the key `name`"),
            (
                Outage,
                "`acquire` returns False if the lock is taken; the client raises `ConnectionError`, and reconnects",
            ),
        ],
        settings: "`timeout` is the TTL of the case; `thread_local=False`, since a client of the suite releases from another thread",
    },
    Library {
        name: "redsync",
        lock: "redsync.Mutex",
        language: Language::Go,
        store: Store::Redis(""),
        claims: &[
            (Answers, "`Unlock`: \"returns the status of unlock\""),
            (
                Tries,
                "`TryLockContext`: \"only attempts to lock m once and returns immediately\"",
            ),
            (
                Waits,
                "`LockContext`, and `WithTries`: \"the number of times lock acquire is attempted\"",
            ),
            (Limits, "`LockContext` takes a context, which may have a deadline"),
            (Cancels, "`LockContext` takes a context, which may be cancelled"),
            (Expires, "`WithExpiry`: \"the expiry of a mutex\""),
            (
                Extends,
                "`ExtendContext`: \"resets the mutex's expiry and returns the status of expiry extension\"",
            ),
            (Clock, "`Until`: \"the time of validity of acquired lock\""),
            (Valid, "`Until`: as above"),
            (
                Tells,
                "`ErrLockAlreadyExpired`: \"if trying to unlock the lock which already expired\"",
            ),
            (AnyName, "`Name`: \"mutex name (i.e. the Redis key)\""),
            (
                Outage,
                "`ErrTaken`: \"the lock is already taken in a quorum on nodes\"; `RedisError`: \"an error communicating with one of the Redis nodes\"",
            ),
        ],
        settings: "`WithExpiry` is the TTL of the case; `WithTries` a million, since an acquire of the suite waits for ever (the default is 32)",
    },
    Library {
        name: "rueidislock",
        lock: "rueidislock.Locker",
        language: Language::Go,
        store: Store::Redis("rueidislock:0:"),
        claims: &[
            (Answers, "README: \"invoke cancel() to release the lock\""),
            (
                Tries,
                "`TryWithContext`: \"tries to acquire a distributed redis lock by name without waiting\"",
            ),
            (
                Waits,
                "`WithContext`: \"acquires a distributed redis lock by name by waiting for it\"",
            ),
            (Limits, "`WithContext` takes a context, which may have a deadline"),
            (Cancels, "`WithContext` takes a context, which may be cancelled"),
            (Expires, "`KeyValidity`: \"the validity duration of locks\""),
            (
                Renews,
                "`KeyValidity`: \"will be extended periodically by the `ExtendInterval`\"",
            ),
            (
                Clock,
                "README: \"The returned `ctx` will be canceled automatically and immediately once the `KeyMajority` is not held anymore, for example: Redis are down\"",
            ),
            (
                Loss,
                "README: the same, \"Acquired keys have been deleted by other programs or administrators\"",
            ),
            (AnyName, "README: the keys `rueidislock:0:my_lock`"),
        ],
        settings: "`KeyMajority` 1 and `NoLoopTracking`, as the README advises for one Redis of 7.0.5 or later; `KeyValidity` 3 s; `TryNextAfter` 1 s, since a busy machine may take longer than the default of 20 ms for one request",
    },
    Library {
        name: "redisson",
        lock: "RLock",
        language: Language::Java,
        store: Store::Redis(""),
        claims: &[
            (Answers, "`unlock` is a call"),
            (
                Tries,
                "`RLock` is a `java.util.concurrent.locks.Lock`: `tryLock()` acquires it \"only if it is free at the time of invocation\"",
            ),
            (Waits, "`lock()`"),
            (
                Limits,
                "`tryLock(waitTime, leaseTime, unit)`: \"waits up to defined waitTime if necessary\"",
            ),
            (Cancels, "`lockInterruptibly`: a thread that waits can be interrupted"),
            (
                Expires,
                "reference, Lock: \"prevent infinity locking due to Redisson instance crash or other reason why lock can't be released\"",
            ),
            (
                Renews,
                "reference, Lock: \"a lock watchdog, which prolongs lock expiration while the lock holder Redisson instance is alive\"",
            ),
            (
                Fixed,
                "`leaseTime`: \"After specified time interval locked lock will be released automatically\"",
            ),
            (
                Tells,
                "reference, Lock: \"only lock owner thread can unlock it otherwise `IllegalMonitorStateException` would be thrown\"",
            ),
            (AnyName, "`getLock(name)`: the name of the object at the server"),
            (
                Outage,
                "`RedisConnectionException`, `RedisTimeoutException`; reference: \"auto-reconnection\"",
            ),
        ],
        settings: "`lockWatchdogTimeout` 3 s (the default is 30 s). A thread for each acquire, which owns the lock",
    },
    Library {
        name: "redisson-fenced",
        lock: "RFencedLock",
        language: Language::Java,
        store: Store::Redis(""),
        claims: &[
            (Waits, "as `RLock`"),
            (Expires, "as `RLock`"),
            (
                Tokens,
                "reference, Fenced Lock: \"maintains the fencing token to avoid cases when Client acquiring the lock was delayed\"; \"the token is increased\"",
            ),
        ],
        settings: "as `RLock`. Only what concerns tokens is tested again",
    },
    Library {
        name: "curator",
        lock: "InterProcessMutex",
        language: Language::Java,
        store: Store::ZooKeeper,
        claims: &[
            (Answers, "`release` is a call"),
            (Tries, "`acquire(time, unit)` with a time of 0"),
            (
                Waits,
                "`acquire`: \"Acquire the mutex - blocking until it's available\"",
            ),
            (
                Limits,
                "`acquire(time, unit)`: \"blocking until it's available or the given time expires\"",
            ),
            (
                Order,
                "`InterProcessMutex`: \"this mutex is 'fair' - each user will get the mutex in the order requested (from ZK's point of view)\"",
            ),
            (
                Expires,
                "recipe of ZooKeeper: an ephemeral node, which ends with its session",
            ),
            (Renews, "the session, which the client keeps alive"),
            (
                Clock,
                "recipe, Error Handling: \"If a SUSPENDED state is reported you cannot be certain that you still hold the lock\"; \"If a LOST state is reported it is certain that you no longer hold the lock\"",
            ),
        ],
        settings: "a session of 3 s (the default is 60 s); `ExponentialBackoffRetry(1000, 3)`, as in the guide. In cases of a holder that is cut off, SUSPENDED counts as the end. A thread for each acquire, which owns the lock",
    },
    Library {
        name: "kazoo",
        lock: "kazoo.recipe.lock.Lock",
        language: Language::Python,
        store: Store::ZooKeeper,
        claims: &[
            (Answers, "`release`: \"Release the lock immediately\""),
            (Tries, "`acquire(blocking=False)`: \"return immediately\""),
            (Waits, "`acquire`: \"By defaults blocks and waits forever\""),
            (
                Limits,
                "`acquire`: \"raises `LockTimeout` if the lock wasn't acquired within `timeout` seconds\"",
            ),
            (Cancels, "`cancel`: \"Cancel a pending lock acquire\""),
            (
                Expires,
                "`acquire`: \"When `ephemeral` is set to False session expiration will not release the lock\"; the default is True",
            ),
            (Renews, "the session, which the client keeps alive"),
            (
                Clock,
                "`kazoo.recipe.lock`: \"In the event that a `LOST` state occurs, its certain that the lock and/or the lease has been lost\"; SUSPENDED is to be watched, too",
            ),
        ],
        settings: "a session of 3 s (the default is 10 s). In cases of a holder that is cut off, SUSPENDED counts as the end",
    },
    Library {
        name: "rslock",
        lock: "LockManager",
        language: Language::Rust,
        store: Store::Redis(""),
        claims: &[
            (Answers, "`LockGuard::release`: \"await it when finished\""),
            (
                Tries,
                "`lock`: if it fails, \"A user should retry after a short wait time\"",
            ),
            (Waits, "`acquire`: \"Loops until the lock is acquired\""),
            (Expires, "`LockGuard`: \"the Redis key remains until its TTL expires\""),
            (Extends, "`extend`: \"Extend the given lock by given time\""),
            (Clock, "`Lock::validity_time`: \"Time the lock is still valid\""),
            (Valid, "`Lock::validity_time`: as above"),
            (AnyName, "`Lock::resource`: \"Will be used as the key in Redis\""),
        ],
        settings: "`acquire_no_guard`, as `acquire` without a guard. `using`, which renews, takes the work as a closure and was not tested",
    },
    Library {
        name: "distributed-lock-redis",
        lock: "RedisDistributedLock",
        language: Language::Rust,
        store: Store::Redis("distributed-lock:"),
        claims: &[
            (Answers, "`release`: \"allows proper error handling\""),
            (Tries, "`try_acquire`: \"Attempts to acquire the lock without waiting\""),
            (
                Waits,
                "`acquire`: \"Maximum time to wait. `None` means wait indefinitely\"",
            ),
            (
                Limits,
                "`acquire`: \"`Err(LockError::Timeout)` - Timeout expired before lock acquired\"",
            ),
            (
                Cancels,
                "`acquire`: \"can be cancelled by dropping the returned future\"",
            ),
            (Expires, "`expiry`: \"the lock expiry time\""),
            (
                Renews,
                "`RedisLockHandle`: \"automatically extended in the background while this handle exists\"",
            ),
            (Clock, "README: \"Detect when locks are lost due to connection issues\""),
            (Loss, "`lost_token`: \"signals when the lock is lost\""),
            (
                Outage,
                "`try_acquire`: \"`Ok(None)` - Lock is held by another process\"; `acquire`: \"`Err(LockError::Connection)` - Backend connection failed\"",
            ),
        ],
        settings: "`expiry` 3 s, `extension_cadence` 1 s and `min_validity` 2.7 s: the defaults divided by ten",
    },
    Library {
        name: "distributed-lock-mysql",
        lock: "MySqlDistributedLock",
        language: Language::Rust,
        store: Store::MySql,
        claims: &[
            (Answers, "`release`: \"allows proper error handling\""),
            (Tries, "`try_acquire`: \"Attempts to acquire the lock without waiting\""),
            (
                Waits,
                "`acquire`: \"Maximum time to wait. `None` means wait indefinitely\"",
            ),
            (
                Limits,
                "`acquire`: \"`Err(LockError::Timeout)` - Timeout expired before lock acquired\"",
            ),
            (
                Cancels,
                "`acquire`: \"can be cancelled by dropping the returned future\"",
            ),
            (
                Loss,
                "`lost_token`: \"yields `true` when the lock is lost (e.g., connection died)\"",
            ),
            (
                Outage,
                "`try_acquire`: \"`Ok(None)` - Lock is held by another process\"; `acquire`: \"`Err(LockError::Connection)` - Backend connection failed\"",
            ),
        ],
        settings: "`keepalive_cadence` 1 s (the default is none): without it a lost connection is not noticed",
    },
    Library {
        name: "sqlx",
        lock: "PgAdvisoryLock",
        language: Language::Rust,
        store: Store::Postgres,
        claims: &[
            (
                Answers,
                "`release_now`: \"Immediately release the held advisory lock instead of when the connection is next used\"",
            ),
            (
                Tries,
                "`try_acquire`: \"returning immediately if the lock could not be acquired\"",
            ),
            (Waits, "`acquire`: \"waiting until the lock is acquired\""),
            (
                Cancels,
                "`acquire`: \"This method is cancel safe\"; `try_acquire` is not",
            ),
            (
                Tells,
                "`release_now`: \"An error should only be returned if there is something wrong with the connection, in which case the lock will be automatically released by the connection closing anyway\"",
            ),
            (
                AnyName,
                "`new`: \"using the given string as a key\", from which it derives the server's key of 64 bits",
            ),
            (
                Outage,
                "`try_acquire`: \"The connection is returned if the lock could not be acquired\"; `test_before_acquire` of the pool: \"the health of a connection will be verified\"",
            ),
        ],
        settings: "a connection of a `PgPool` for each acquire; `max_connections` 100 (the default is 10), since an acquire that waits has one, too; `release_now`, as a dropped guard releases when its connection is used again",
    },
    Library {
        name: "zookeeper-client",
        lock: "Client::lock",
        language: Language::Rust,
        store: Store::ZooKeeper,
        claims: &[
            (
                Waits,
                "`lock`: \"Contends lock/leader/latch using given locking path pattern\"",
            ),
            (
                Limits,
                "`lock`: \"a timed lock is easy to construct with `select!` and `sleep`\"",
            ),
            (
                Cancels,
                "`lock`: \"This method is cancellation safe, so you can free to cancel result future without fear to dangle lock\"",
            ),
            (Expires, "`LockPrefix`: an ephemeral node, which ends with its session"),
            (Renews, "the session, which the client keeps alive"),
            (
                Loss,
                "`LockClient::lock_path`: \"Caller can watch this path to detect external lock path deletion\"",
            ),
        ],
        settings: "`LockPrefix::new_curator`; a session of 3 s (the default is 6 s)",
    },
];
