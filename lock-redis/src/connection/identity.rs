//! The run and the data of the server that answers over a connection.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, InfoDict, RedisResult, Value, cmd, from_redis_value, from_redis_value_ref};

/// The run that a server states (`INFO server`). `None` if it states none, or one that is no random number.
pub(super) fn run_id(info: &Value) -> Option<String> {
    let info: InfoDict = from_redis_value_ref(info).ok()?;
    let run: String = info.get("run_id")?;
    let is_random = run.len() >= 32 && run.bytes().any(|digit| digit != run.as_bytes()[0]);
    is_random.then_some(run)
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
