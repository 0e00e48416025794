//! Fencing of a resource that is stored in a Redis.

use std::fmt;
use std::sync::LazyLock;

use lock_core::{Error, ErrorKind, FencingToken, Result, Stale};
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, RedisError, RedisResult, ServerErrorKind, ToSingleRedisArg, Value, cmd};

use crate::error::{code, lock_error_with};
use crate::protocol::{PubSub, Script};

use self::keys::FenceKeys;

mod keys;

static ENTER: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::ENTER));
static RUN: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::RUN));
static ENTER_SHARED: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::ENTER_SHARED));
static RUN_SHARED: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::RUN_SHARED));

/// The most parts of a command that a script runs, its name included.
const MAX_PARTS: usize = 7998;

/// Protects the resource under a key from holders whose lock has expired.
///
/// A lock is a lease: a holder that was paused, or whose write was in flight for long, may come back after the next holder
/// was granted the lock. The fence stores the newest token that has [entered](Self::enter) and rejects all others. Checking
/// writes alone is not enough: of two holders that both have read the same value, the older one could still write first,
/// and its update would be lost. So a holder enters *before its first read*.
///
/// Holders of shared locks, readers, [enter as such](Self::enter_shared). A newer reader rejects older writers, but no other
/// readers. A newer writer rejects everybody.
///
/// ```no_run
/// # async fn example(locks: lock_core::Locker, redis: lock_redis::redis::aio::MultiplexedConnection)
/// # -> Result<(), lock_core::Error> {
/// use lock_redis::Fence;
///
/// let stock = Fence::new(redis, "stock:42")?;
/// let guard = locks.lock("stock/42").acquire().await?;
/// let stock = stock.enter(guard.token()).await?;
/// let left: u32 = stock.get().await?;
/// stock.set(left - 1).await?; // an error, kind `Lost`, if another holder has entered meanwhile
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// It works over any connection of the driver to the Redis that stores the resource; the locks may live elsewhere. All
/// clients that change the resource must enter with tokens of the same lock.
///
/// The newest token is stored in a key of its own, which never expires: `{KEY}:entered`, or `{TAG}:entered:KEY` for a key with
/// a hash tag, so that both lie in one hash slot. If readers have entered since, their newest token follows behind a space.
/// The key must not be deleted as long as an old holder may come back. So the Redis of the data must evict no key without an expiry:
/// `maxmemory-policy` is `noeviction` or one of `volatile-*`.
///
/// Users of other clients run the same scripts: [`ENTER`](Self::ENTER) and [`RUN`](Self::RUN), for readers
/// [`ENTER_SHARED`](Self::ENTER_SHARED) and [`RUN_SHARED`](Self::RUN_SHARED).
#[derive(Clone)]
pub struct Fence<C> {
    connection: C,
    keys: FenceKeys,
}

/// A resource as the holder of a token sees it: once a newer token has entered, every access is rejected.
#[derive(Clone)]
pub struct Fenced<C> {
    connection: C,
    keys: FenceKeys,
    token: FencingToken,
    role: Role,
}

/// The way in which a holder has entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Writer,
    Reader,
}

impl Fence<()> {
    /// The script that enters. `KEYS`: the fence. `ARGV`: the token. It replies `OK`, or the error `STALE NEWEST`.
    pub const ENTER: &'static str = concat!(include_str!("fence/parse.lua"), include_str!("fence/enter.lua"));
    /// The script that runs a command on the resource. `KEYS`: the fence and the resource. `ARGV`: the token, the
    /// command, its arguments: up to 7998 together. It replies as the command does, or the error `STALE NEWEST`
    /// (`STALE 0` where the fence is gone).
    pub const RUN: &'static str = include_str!("fence/run.lua");
    /// The script that enters as a reader, with keys, arguments and replies as those of [`ENTER`](Self::ENTER).
    pub const ENTER_SHARED: &'static str =
        concat!(include_str!("fence/parse.lua"), include_str!("fence/enter_shared.lua"));
    /// The script that runs a reader's command on the resource, with keys, arguments and replies as those of
    /// [`RUN`](Self::RUN). The server rejects commands that write, since the script is declared with `no-writes`.
    pub const RUN_SHARED: &'static str = concat!(
        "#!lua flags=no-writes\n",
        include_str!("fence/parse.lua"),
        include_str!("fence/run_shared.lua")
    );
}

impl<C: ConnectionLike + Clone> Fence<C> {
    /// A fence for this key. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for a key with a `}` but without a hash tag: no other key lies surely in its slot.
    pub fn new(connection: C, resource: impl Into<String>) -> Result<Self> {
        let keys = FenceKeys::new(resource.into())?;
        Ok(Self { connection, keys })
    }

    /// Enters: from now on older tokens are rejected, those of readers too. Call it before the first read. The same token may
    /// enter again.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered. After any other error this one may
    /// have entered.
    ///
    /// # Cancel safety
    /// If dropped, the token may have entered, which only rejects older ones.
    pub async fn enter(&self, token: FencingToken) -> Result<Fenced<C>> {
        self.enter_as(Role::Writer, token).await
    }

    /// Enters as a reader, with the token of a shared hold: from now on writers with older tokens are rejected, and other
    /// readers are not. Call it before the first read. All readers must enter: an older writer that resumes late could
    /// otherwise write between two reads.
    ///
    /// After a downgrade, enter again with this. A reader may only run commands that read: it excludes no other reader, so an
    /// update of both could be lost.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer writer has entered. After any other error this token may
    /// have entered.
    ///
    /// # Cancel safety
    /// If dropped, the token may have entered, which only rejects older writers.
    pub async fn enter_shared(&self, token: FencingToken) -> Result<Fenced<C>> {
        self.enter_as(Role::Reader, token).await
    }

    async fn enter_as(&self, role: Role, token: FencingToken) -> Result<Fenced<C>> {
        let fenced = Fenced {
            connection: self.connection.clone(),
            keys: self.keys.clone(),
            token,
            role,
        };
        let arguments = [token.to_string().into_bytes()];
        fenced.invoke(role.enter(), &[&self.keys.fence], &arguments).await?;
        Ok(fenced)
    }
}

impl Role {
    fn enter(self) -> &'static Script {
        match self {
            Self::Writer => &ENTER,
            Self::Reader => &ENTER_SHARED,
        }
    }

    fn run(self) -> &'static Script {
        match self {
            Self::Writer => &RUN,
            Self::Reader => &RUN_SHARED,
        }
    }
}

impl<C: ConnectionLike + Clone> Fenced<C> {
    /// The token that has entered.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Reads the key (`GET`).
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn get<T: FromRedisValue>(&self) -> Result<T> {
        self.query(cmd("GET").arg(&self.keys.resource)).await
    }

    /// Writes the key (`SET`).
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute it, unless a newer token enters before.
    pub async fn set(&self, value: impl ToSingleRedisArg) -> Result<()> {
        self.query(cmd("SET").arg(&self.keys.resource).arg(value)).await
    }

    /// Runs any command that a script may run, such as `HSET`, on the key or others of its hash slot; for a
    /// [reader](Fence::enter_shared), any that only reads, such as `HGETALL`. Replies have the form of RESP2: a map comes as a
    /// list.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered: nothing was done.
    /// [`ErrorKind::Unsupported`] for a command of more than 7998 parts, its name included, which is the limit of a script,
    /// and for one with a cursor: nothing was sent. `Unsupported` also for a reader's command that writes: nothing was done.
    /// After [`ErrorKind::Unavailable`] the outcome is unknown.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute it, unless a newer token enters before.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let mut arguments = vec![self.token.to_string().into_bytes()];
        for argument in command.args_iter() {
            match argument {
                Arg::Simple(bytes) => arguments.push(bytes.to_vec()),
                _ => {
                    let what = "a fenced command is run at once: it has no cursor to go on from";
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
            }
        }
        if arguments.len() > 1 + MAX_PARTS {
            let what = format!("a fenced command has at most {MAX_PARTS} parts: send it in several");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let keys = [&*self.keys.fence, &*self.keys.resource];
        let reply = self.invoke(self.role.run(), &keys, &arguments).await?;
        T::from_redis_value(reply).map_err(|error| self.lock_error(error.into()))
    }

    async fn invoke(&self, script: &Script, keys: &[&str], arguments: &[Vec<u8>]) -> Result<Value> {
        let script = script.form(PubSub::Plain);
        let mut connection = self.connection.clone();
        let reply = send(&mut connection, &script.run(keys, arguments)).await;
        let reply = match reply {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                send(&mut connection, &script.run_with_text(keys, arguments)).await
            }
            reply => reply,
        };
        reply.map_err(|error| self.lock_error(error))
    }

    fn lock_error(&self, error: RedisError) -> Error {
        let resource = &self.keys.resource;
        if self.role == Role::Reader && is_refused_write(&error) {
            let message = format!(
                "a reader of {resource:?} cannot run a command that writes: enter with the token of an exclusive hold"
            );
            return Error::new(ErrorKind::Unsupported, message).with_source(error);
        }
        if code(&error) != "STALE" {
            let remedy = "fencing needs +eval, +evalsha, +get, +set, the commands that are run, and both keys";
            return lock_error_with(error, &format_args!("the Redis of {resource:?}"), remedy);
        }
        // A fence that knows no newer token has forgotten this one.
        let newest = error.detail().and_then(|newest| newest.parse().ok());
        Stale::new(self.token, newest.unwrap_or(0)).into_error(resource)
    }
}

/// True if the server rejected a command because it writes, in a script that must not.
fn is_refused_write(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.contains("Write commands are not allowed from read-only scripts")
}

async fn send(connection: &mut impl ConnectionLike, command: &Cmd) -> RedisResult<Value> {
    connection
        .req_packed_command(command)
        .await
        .and_then(Value::extract_error)
}

impl<C> fmt::Debug for Fence<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("resource", &self.keys.resource)
            .finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for Fenced<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("resource", &self.keys.resource)
            .field("token", &self.token)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
