//! The run and the data of the server that answers over a connection.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, InfoDict, RedisError, RedisResult, Value, cmd, from_redis_value, from_redis_value_ref};

use crate::error::code;

/// The run that a server states (`INFO server`). `None` if it states none, or one that is no random number.
pub(super) fn run_id(info: &Value) -> Option<String> {
    let info: InfoDict = from_redis_value_ref(info).ok()?;
    let run: String = info.get("run_id")?;
    let is_random = run.len() >= 32 && run.bytes().any(|digit| digit != run.as_bytes()[0]);
    is_random.then_some(run)
}

/// True if the server will never state its run over this connection: the user may not ask, or it is a proxy. Other rejections pass.
pub(super) fn states_none(error: &RedisError) -> bool {
    matches!(code(error), "NOPERM" | "ERR")
}

/// One run of one server, since it was promoted last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Another one after each start.
    pub(super) run: String,
    /// Another one after each promotion; zeros if there was none.
    pub(super) promotion: String,
    /// Of its data: another one after each promotion, and sometimes in between.
    pub(super) data: String,
}

impl Identity {
    pub(super) async fn of(connection: &mut MultiplexedConnection) -> RedisResult<Self> {
        let info = connection.send_packed_command(&cmd("INFO")).await?;
        let info: InfoDict = from_redis_value(info.extract_error()?)?;
        let get = |key: &str| info.get::<String>(key);
        match (get("run_id"), get("master_replid2"), get("master_replid")) {
            (Some(run), Some(promotion), Some(data)) => Ok(Self { run, promotion, data }),
            _ => Err((
                ErrorKind::Parse,
                "INFO does not say run_id, master_replid and master_replid2",
            )
                .into()),
        }
    }

    /// True if the server with this reply to `INFO replication` has the data of this id.
    pub(super) fn has_data(info: &Value, data: &str) -> bool {
        let info: Option<InfoDict> = from_redis_value_ref(info).ok();
        info.and_then(|info| info.get::<String>("master_replid")).as_deref() == Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_busy_states_its_run_later() {
        let states_none = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            let error = reply.and_then(Value::extract_error);
            states_none(&error.expect_err("an error"))
        };
        assert!(states_none(
            "NOPERM this user has no permissions to run the 'info' command"
        ));
        assert!(states_none(
            "ERR unknown command 'INFO', with args beginning with: 'server'"
        ));
        for passing in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "NOAUTH Authentication required.",
        ] {
            assert!(!states_none(passing), "{passing}");
        }
    }
}
