//! `two-updates`: what a lease in a row costs at the least, if it is to outlast a crash.

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_mysql::sqlx::mysql::MySqlConnection;

use super::super::TTL;
use super::{Autocommit, connect, execute, hex};

const MAKE_TABLE: &str = "CREATE TABLE IF NOT EXISTS `two_updates` (`name` VARBINARY(255) NOT NULL PRIMARY KEY, \
                          `holder` VARBINARY(16), `expires` DATETIME(6), \
                          `token` BIGINT UNSIGNED NOT NULL DEFAULT 0) ENGINE=InnoDB";

/// Each lock has a connection of its own, and each statement is a transaction of its own.
pub(crate) struct TwoUpdates(String);

impl TwoUpdates {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

pub(crate) struct TwoUpdatesLock {
    connection: MySqlConnection,
    acquire: String,
    release: String,
}

impl Subject for TwoUpdates {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(Self(self.0.clone()))
    }
}

impl Client for TwoUpdates {
    type Lock = TwoUpdatesLock;

    async fn lock(&self, name: &str) -> Result<TwoUpdatesLock> {
        let mut connection = connect(&self.0, Autocommit::On).await?;
        let (name, holder, ttl) = (hex(name), hex("sixteen letters!"), TTL.as_micros());
        execute(&mut connection, MAKE_TABLE.into()).await?;
        let make_row = format!("INSERT IGNORE INTO `two_updates` (`name`) VALUES ({name})");
        execute(&mut connection, make_row).await?;
        Ok(TwoUpdatesLock {
            connection,
            acquire: format!(
                "UPDATE `two_updates` SET `holder`={holder},`token`=LAST_INSERT_ID(`token`+1),\
                 `expires`=UTC_TIMESTAMP(6)+INTERVAL {ttl} MICROSECOND \
                 WHERE `name`={name} AND (`holder` IS NULL OR `expires`<=UTC_TIMESTAMP(6))"
            ),
            release: format!(
                "UPDATE `two_updates` SET `holder`=NULL \
                 WHERE `name`={name} AND `holder`={holder} AND `expires`>UTC_TIMESTAMP(6)"
            ),
        })
    }
}

impl Lock for TwoUpdatesLock {
    type Held = ();

    /// Nobody else wants it.
    async fn acquire(&mut self) -> Result<()> {
        one_row(&mut self.connection, &self.acquire).await
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        one_row(&mut self.connection, &self.release).await
    }
}

async fn one_row(connection: &mut MySqlConnection, update: &str) -> Result<()> {
    let done = execute(connection, update.into()).await?;
    match done.first().map(|done| done.rows_affected()) {
        Some(1) => Ok(()),
        other => Err(format!("an update of one row matched {other:?}").into()),
    }
}
