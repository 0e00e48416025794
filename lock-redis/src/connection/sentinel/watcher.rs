//! One Sentinel: a connection to it, over which it answers and announces failovers.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, ServerErrorKind, Value, from_redis_value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::answers::{Answers, Named};
use crate::config::hosts::Address;
use crate::config::{RedisConfig, Sentinels};
use crate::connection::access::Access;
use crate::connection::opened::{self, DialError, Opened};
use crate::error::{code, lock_error_with};

/// The channel on which a Sentinel announces failovers.
const SWITCHES: &str = "+switch-master";

/// The pause before the next connection to a Sentinel that cannot be reached, unless it is asked earlier.
const PAUSE: Duration = Duration::from_secs(1);

/// One Sentinel, and the master that it is asked about.
pub(super) struct Watcher {
    access: Access,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
    address: Address,
    master: String,
    /// The time limit for connecting, and for an answer.
    limit: Duration,
}

/// A connection to a Sentinel.
struct Subscribed {
    opened: Opened,
    /// Notified when the Sentinel announces a failover of the master.
    switched: Arc<Notify>,
    ended: Arc<Notify>,
}

impl Watcher {
    pub(super) fn new(config: &RedisConfig, sentinels: &Sentinels, address: &Address) -> Result<Self> {
        let mut settings = redis::RedisConnectionInfo::default();
        if let Some(user) = &sentinels.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &sentinels.password {
            settings = settings.set_password(password);
        }
        let info = config.at_node(address).info().clone().set_redis_settings(settings);
        Ok(Self {
            access: Access::new(&info, sentinels.credentials.as_ref(), config.timeouts())?,
            #[cfg(feature = "tls")]
            tls: config.tls().cloned(),
            address: address.clone(),
            master: sentinels.master.clone(),
            limit: config.connect_timeout() / 2,
        })
    }

    /// Keeps the answer of this Sentinel up to date: asks it in each round, when it announces a failover, and when it can be
    /// reached again.
    pub(super) async fn watch(&self, index: usize, answers: &watch::Sender<Answers>) -> Infallible {
        let mut rounds = answers.subscribe();
        loop {
            let mut round = rounds.borrow().round;
            let record = |round, answer| answers.send_modify(|answers| answers.of[index] = Some((round, answer)));
            match self.within_limit(self.subscribe()).await {
                Ok(mut subscribed) => loop {
                    round = rounds.borrow().round;
                    let answer = self.within_limit(self.ask(&mut subscribed.opened.connection)).await;
                    let is_lost = answer.as_ref().is_err_and(Error::is_retryable);
                    record(round, answer);
                    if is_lost {
                        break;
                    }
                    tokio::select! {
                        () = subscribed.switched.notified() => {}
                        _ = rounds.wait_for(|answers| answers.round > round) => {}
                        () = subscribed.ended.notified() => break,
                    }
                },
                Err(error) => record(round, Err(error)),
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = rounds.wait_for(|answers| answers.round > round) => {}
            }
        }
    }

    async fn within_limit<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(self.limit, work).await.unwrap_or_else(|_elapsed| {
            let what = format!(
                "{self} did not answer within {:?}: is it overloaded or cut off?",
                self.limit
            );
            Err(Error::new(ErrorKind::Unavailable, what))
        })
    }

    async fn subscribe(&self) -> Result<Subscribed> {
        let (switched, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (on_switch, on_end) = (switched.clone(), ended.clone());
        let of_master = format!("{} ", self.master).into_bytes();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                match (push.kind, &push.data[..]) {
                    (PushKind::Disconnection, _) => on_end.notify_one(),
                    (PushKind::Message, [_, Value::BulkString(message)]) if message.starts_with(&of_master) => {
                        on_switch.notify_one();
                    }
                    _ => {}
                }
                Ok::<(), Infallible>(())
            });
        #[cfg(feature = "tls")]
        let opened = opened::open(&self.access, (self.tls.as_ref(), self), config).await;
        #[cfg(not(feature = "tls"))]
        let opened = opened::open(&self.access, config).await;
        let mut opened = opened.map_err(|error| match error {
            DialError::Driver(error) => self.error(error),
            DialError::Lock(error) => error,
        })?;
        let subscribed = opened.connection.subscribe(SWITCHES).await;
        subscribed.map_err(|error| self.error(error))?;
        Ok(Subscribed {
            opened,
            switched,
            ended,
        })
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<Named> {
        let mut commands = redis::pipe();
        for question in ["GET-MASTER-ADDR-BY-NAME", "MASTER"] {
            commands.cmd("SENTINEL").arg(question).arg(&self.master);
        }
        let replies = connection.send_packed_commands(&commands, 0, 2).await;
        let replies = replies.map_err(|error| self.error(error))?;
        let [address, master] = <[Value; 2]>::try_from(replies).map_err(|_| self.garbled())?;
        match address.extract_error().map_err(|error| self.error(error))? {
            Value::Nil => Err(self.unknown_master()),
            address => Ok(Named {
                address: from_redis_value(address).map_err(|_| self.garbled())?,
                // It may not be permitted.
                epoch: master.extract_error().ok().and_then(epoch),
            }),
        }
    }

    fn unknown_master(&self) -> Error {
        let what = format!(
            "{self} knows no master {}: put the name into the URL that `sentinel monitor` gives it \
             (redis+sentinel://host:port/NAME)",
            self.master
        );
        Error::new(ErrorKind::Misconfigured, what)
    }

    fn garbled(&self) -> Error {
        Error::new(
            ErrorKind::Misconfigured,
            format!("{self} does not answer like one: check the URL"),
        )
    }

    fn error(&self, error: RedisError) -> Error {
        let is_denied =
            ["NOAUTH", "WRONGPASS"].contains(&code(&error)) || error.kind() == redis::ErrorKind::AuthenticationFailed;
        let is_no_sentinel = error.kind() == ServerErrorKind::ResponseError.into()
            && error.detail().is_some_and(|detail| detail.contains("unknown command"));
        let what = match (is_denied, is_no_sentinel) {
            (true, _) => Some((
                ErrorKind::Denied,
                "wants another user or password: set sentinel_user and sentinel_password in the URL",
            )),
            (_, true) => Some((
                ErrorKind::Misconfigured,
                "is no Sentinel: name the Sentinels, or begin the URL of a single server with redis://",
            )),
            _ => None,
        };
        let shown = match what {
            Some((kind, what)) => Error::new(kind, format!("{self} {what}")).with_source(error.clone()),
            None => {
                let permit =
                    "permit +sentinel|get-master-addr-by-name, +sentinel|master, +subscribe and &+switch-master";
                lock_error_with(error.clone(), self, permit)
            }
        };
        self.access.hide_quoted(&error, shown)
    }
}

impl fmt::Display for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Sentinel at {}:{}", self.address.0, self.address.1)
    }
}

/// From the reply to `SENTINEL MASTER`.
fn epoch(master: Value) -> Option<u64> {
    let mut master: std::collections::HashMap<String, String> = from_redis_value(master).ok()?;
    master.remove("config-epoch")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_read_from_a_map_and_from_a_list() {
        let text = |text: &str| Value::BulkString(text.into());
        let list = vec![text("name"), text("m"), text("config-epoch"), text("7")];
        let map = vec![(text("name"), text("m")), (text("config-epoch"), text("7"))];
        assert_eq!(epoch(Value::Array(list)), Some(7));
        assert_eq!(epoch(Value::Map(map)), Some(7));
        assert_eq!(epoch(Value::Nil), None);
    }

    #[test]
    fn what_is_wrong_with_a_sentinel_is_said() {
        let config = RedisConfig::sentinel([("s1", 26379)], "m").with_sentinel_password("sesame");
        let sentinels = config.sentinels().expect("it has some");
        let watcher = Watcher::new(&config, sentinels, &sentinels.servers[0]).expect("a good configuration");
        for (reply, kind, hint) in [
            (
                "NOAUTH Authentication required.",
                ErrorKind::Denied,
                "sentinel_password",
            ),
            (
                "WRONGPASS invalid username-password pair",
                ErrorKind::Denied,
                "sentinel_password",
            ),
            (
                "NOPERM this user has no permissions to run the 'sentinel' command",
                ErrorKind::Denied,
                "permit +sentinel",
            ),
            (
                "ERR unknown command 'SENTINEL', with args beginning with: 'sesame'",
                ErrorKind::Misconfigured,
                "redis://",
            ),
            ("LOADING Redis is loading", ErrorKind::Unavailable, "loading"),
        ] {
            let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).expect("an error line");
            let error = watcher.error(value.extract_error().expect_err("it is one"));
            assert_eq!(error.kind(), kind, "{error}");
            let shown = format!("{error} {error:?}");
            assert!(
                shown.contains(hint) && shown.contains("Sentinel at s1:26379"),
                "{shown}"
            );
            assert!(!shown.contains("sesame"), "{shown}");
        }
    }
}
