//! `bare`: polylock's own statements, each lock on a connection of its own. A test compares them.

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_mysql::sqlx::mysql::MySqlConnection;

use super::super::TTL;
use super::{connect, execute, hex, is_busy, make_row};

pub(crate) struct Bare(String);

pub(crate) struct BareLock {
    connection: MySqlConnection,
    take: String,
    wait: String,
    release: String,
}

impl Bare {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

impl Subject for Bare {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(Self(self.0.clone()))
    }
}

impl Client for Bare {
    type Lock = BareLock;

    async fn lock(&self, name: &str) -> Result<BareLock> {
        let mut connection = connect(&self.0).await?;
        let name = format!("bare/{name}");
        make_row(&mut connection, &name).await?;
        let (name, ttl) = (hex(&name), TTL.as_micros());
        let now = "CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)";
        let lock = format!("SELECT 1 FROM `polylock` WHERE `name`={name} FOR UPDATE");
        let take = format!(
            "UPDATE `polylock` SET `token`=GREATEST(`token`+1,1,{now},\
             COALESCE((SELECT t.`token`+1 FROM `polylock_tokens` t WHERE t.`name`={name}),0)),\
             `connection`=CONNECTION_ID()+0*LAST_INSERT_ID(`token`|(`token`>{now})<<63),\
             `label`=x'',`expires`={now}+{ttl} WHERE `name`={name}"
        );
        Ok(BareLock {
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
