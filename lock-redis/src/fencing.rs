//! The resource's side of fencing, for what lies in a Redis.

use std::error::Error as StdError;
use std::fmt;
use std::sync::LazyLock;

use lock_core::{Error, ErrorKind, FencingToken, Result};
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, RedisError, RedisResult, ServerErrorKind, ToSingleRedisArg, Value, cmd};

use crate::error::{code, explain_of};
use crate::names::hash_tag;
use crate::protocol::Script;

static ENTER: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::ENTER));
static RUN: LazyLock<Script> = LazyLock::new(|| Script::new(Fence::RUN));

/// So many arguments a script can pass on to a command, whose name is one of them.
const MOST_PARTS: usize = 7998;

/// A fence round a key, by which holders that come too late are kept out of what lies there.
///
/// A lock is a lease: a holder that was paused, or whose write was under way for long, may come back after the next one
/// was granted the lock. The fence knows the newest token that has [entered](Self::enter), and refuses all others. To
/// check writes alone would not do: of two holders that both have read the same value, the older one could still write
/// first, and its update would be lost. So a holder enters *before its first read*.
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
/// It works over any connection of the driver, to the Redis that has the resource; locks may live elsewhere. All that
/// change the resource must enter by tokens of the same lock.
///
/// The newest token is kept in a key of its own, without an end: `{KEY}:entered`, or `{TAG}:entered:KEY` for a key with
/// a hash tag, so that both lie in one hash slot. It must not be deleted as long as an old holder may come back.
///
/// Users of other clients run the same two scripts, [`ENTER`](Self::ENTER) and [`RUN`](Self::RUN).
#[derive(Clone)]
pub struct Fence<C> {
    connection: C,
    keys: Keys,
}

/// A resource as the holder of a token sees it: every access is refused once a newer one has entered.
#[derive(Clone)]
pub struct Fenced<C> {
    connection: C,
    keys: Keys,
    token: FencingToken,
}

/// Why a fence refuses a token: a newer one has entered. The source of an [`Error`] of the kind [`ErrorKind::Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The one that is refused.
    pub token: FencingToken,
    /// The one that has entered. `None`: the fence has forgotten it, so that nothing read before can be relied on.
    pub newest: Option<FencingToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    fence: String,
    resource: String,
}

impl Fence<()> {
    /// The script that enters. `KEYS`: the fence. `ARGV`: the token. It answers `OK`, or the error `STALE NEWEST`.
    pub const ENTER: &'static str = include_str!("fencing/enter.lua");
    /// The script that runs a command on the resource. `KEYS`: the fence and the resource. `ARGV`: the token, the
    /// command, its arguments: up to 7998 together. It answers as the command does, or the error `STALE NEWEST`
    /// (`STALE 0` where the fence is gone).
    pub const RUN: &'static str = include_str!("fencing/run.lua");
}

impl<C: ConnectionLike + Clone> Fence<C> {
    /// Round this key. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for a key with a `}` but without a hash tag: no other key lies surely in its slot.
    pub fn new(connection: C, resource: impl Into<String>) -> Result<Self> {
        let keys = Keys::new(resource.into())?;
        Ok(Self { connection, keys })
    }

    /// Enters: from now on older tokens are refused. To be done before the first read. The same token may enter again.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the source [`Stale`] when a newer token has entered. All others: it is not known whether
    /// this one has.
    ///
    /// # Cancel safety
    /// Dropped, it may have entered, which keeps out only older ones.
    pub async fn enter(&self, token: FencingToken) -> Result<Fenced<C>> {
        let fenced = Fenced {
            connection: self.connection.clone(),
            keys: self.keys.clone(),
            token,
        };
        let arguments = [token.to_string().into_bytes()];
        fenced.invoke(&ENTER, &[&self.keys.fence], &arguments).await?;
        Ok(fenced)
    }
}

impl<C: ConnectionLike + Clone> Fenced<C> {
    /// The token that has entered.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// What the key holds (`GET`).
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn get<T: FromRedisValue>(&self) -> Result<T> {
        self.query(cmd("GET").arg(&self.keys.resource)).await
    }

    /// Replaces what the key holds (`SET`).
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Cancel safety
    /// Dropped, it may still be executed, unless a newer token enters before.
    pub async fn set(&self, value: impl ToSingleRedisArg) -> Result<()> {
        self.query(cmd("SET").arg(&self.keys.resource).arg(value)).await
    }

    /// Runs any command that a script may run, such as `HSET`, on the key or others of its hash slot. Answers have the
    /// form of RESP2: a map comes as a list.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the source [`Stale`] when a newer token has entered: nothing was done.
    /// [`ErrorKind::Unsupported`] for a command of more than 7998 parts, its name included, which is what a script can
    /// take, and for one with a cursor: nothing was sent. After [`ErrorKind::Unavailable`] the outcome is unknown.
    ///
    /// # Cancel safety
    /// Dropped, it may still be executed, unless a newer token enters before.
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
        if arguments.len() > 1 + MOST_PARTS {
            let what = format!("a fenced command has at most {MOST_PARTS} parts: send it in several");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let keys = [&*self.keys.fence, &*self.keys.resource];
        let answer = self.invoke(&RUN, &keys, &arguments).await?;
        T::from_redis_value(answer).map_err(|error| self.explain(error.into()))
    }

    async fn invoke(&self, script: &Script, keys: &[&str], arguments: &[Vec<u8>]) -> Result<Value> {
        let mut connection = self.connection.clone();
        let answer = send(&mut connection, &script.run(keys, arguments)).await;
        let answer = match answer {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                send(&mut connection, &script.run_in_full(keys, arguments)).await
            }
            answer => answer,
        };
        answer.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: RedisError) -> Error {
        let resource = &self.keys.resource;
        if code(&error) != "STALE" {
            let remedy = "fencing needs +eval, +evalsha, +get, +set, the commands that are run, and both keys";
            return explain_of(error, &format_args!("the Redis of {resource:?}"), remedy);
        }
        let newest = error.detail().and_then(|newest| newest.parse().ok());
        let newest = newest.and_then(FencingToken::new);
        let stale = Stale {
            token: self.token,
            newest,
        };
        Error::new(
            ErrorKind::Lost,
            format!("the fence of {resource:?} refuses us: {stale}"),
        )
        .with_source(stale)
    }
}

async fn send(connection: &mut impl ConnectionLike, command: &Cmd) -> RedisResult<Value> {
    connection
        .req_packed_command(command)
        .await
        .and_then(Value::extract_error)
}

impl Keys {
    fn new(resource: String) -> Result<Self> {
        let fence = match hash_tag(&resource) {
            Some(tag) => format!("{{{tag}}}:entered:{resource}"),
            None if !resource.is_empty() && !resource.contains('}') => format!("{{{resource}}}:entered"),
            None => {
                let what = format!(
                    "no fence can lie in the hash slot of the key {resource:?}: give it a hash tag, like {{x}}, or no '}}'"
                );
                return Err(Error::new(ErrorKind::Misconfigured, what));
            }
        };
        Ok(Self { fence, resource })
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.newest {
            Some(newest) => write!(f, "token {} is stale, {newest} has entered", self.token),
            None => write!(
                f,
                "it does not know token {} any more: enter again, and read again",
                self.token
            ),
        }
    }
}

impl StdError for Stale {}

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
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_lies_beside_its_resource() {
        let cases = [
            ("stock:42", "{stock:42}:entered"),
            ("{shop}:stock", "{shop}:entered:{shop}:stock"),
            ("a{b}c", "{b}:entered:a{b}c"),
            ("a{b", "{a{b}:entered"),
        ];
        for (resource, fence) in cases {
            let keys = Keys::new(resource.into()).expect("it can have one");
            assert_eq!((&*keys.fence, &*keys.resource), (fence, resource));
            assert_eq!(hash_tag(fence), Some(hash_tag(resource).unwrap_or(resource)));
        }
        for resource in ["", "a}b", "{}a"] {
            let error = Keys::new(resource.into()).expect_err("it cannot");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{resource}");
        }
    }
}
