//! `bare`: polylock's own statements, each lock on a connection of its own. A test compares them.

use benchmarks_load::{Lock, Result};
use lock_mysql::sqlx::mysql::MySqlConnection;

use super::super::TTL;
use super::{connect, execute, hex, is_busy, make_row};

pub(crate) struct BareLock {
    connection: MySqlConnection,
    take: String,
    wait: String,
    release: String,
}

impl BareLock {
    pub(super) async fn connect(url: &str, name: &str) -> Result<Self> {
        let mut connection = connect(url).await?;
        make_row(&mut connection, name).await?;
        let (name, ttl) = (hex(name), TTL.as_micros());
        let now = "CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)";
        let lock = format!("SELECT 1 FROM `polylock` WHERE `name`={name} FOR UPDATE");
        let take = format!(
            "UPDATE `polylock` SET `token`=GREATEST(`token`+1,1,{now},\
             COALESCE((SELECT t.`token`+1 FROM `polylock_tokens` t WHERE t.`name`={name}),0)),\
             `connection`=CONNECTION_ID()+0*LAST_INSERT_ID(`token`|(`token`>{now})<<63),\
             `label`=x'',`expires`={now}+{ttl} WHERE `name`={name}"
        );
        Ok(Self {
            connection,
            wait: format!("ROLLBACK;{lock};{take}"),
            take: format!("{lock} NOWAIT;{take}"),
            release: format!(
                "UPDATE `polylock` SET `connection`=NULL,`label`=NULL,`expires`=NULL WHERE `name`={name};COMMIT"
            ),
        })
    }
}

impl Lock for BareLock {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        match execute(&mut self.connection, self.take.clone()).await {
            Err(error) if is_busy(&error) => execute(&mut self.connection, self.wait.clone()).await?,
            done => done?,
        };
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        execute(&mut self.connection, self.release.clone()).await?;
        Ok(())
    }
}
