//! Storage that rejects any token lower than the highest it has seen.
//!
//! Every access needs the token, reads included: a holder's first read already shuts out all older holders. If only writes did,
//! an older holder could still write after that read, and its update would be lost.

use std::error::Error;

use polylock::FencingToken;

pub(crate) enum Account {
    Memory(Memory),
    #[cfg(feature = "mysql")]
    MySql(in_mysql::Account),
    #[cfg(feature = "postgres")]
    Postgres(in_postgres::Account),
}

impl Account {
    /// An account with this balance: in the database of the URL of a MySQL or a PostgreSQL, otherwise in memory.
    pub(crate) async fn open(url: &str, balance: i64) -> Result<Self, Box<dyn Error>> {
        #[cfg(feature = "mysql")]
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            return Ok(Self::MySql(in_mysql::Account::open(url, balance).await?));
        }
        #[cfg(feature = "postgres")]
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            return Ok(Self::Postgres(in_postgres::Account::open(url, balance).await?));
        }
        let _ = url;
        Ok(Self::Memory(Memory { balance, newest: None }))
    }

    pub(crate) async fn read(&mut self, token: FencingToken) -> Result<i64, Box<dyn Error>> {
        match self {
            Self::Memory(memory) => Ok(*memory.access(token)?),
            #[cfg(feature = "mysql")]
            Self::MySql(account) => account.read(token).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(account) => account.read(token).await,
        }
    }

    pub(crate) async fn write(&mut self, token: FencingToken, balance: i64) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Memory(memory) => *memory.access(token)? = balance,
            #[cfg(feature = "mysql")]
            Self::MySql(account) => account.write(token, balance).await?,
            #[cfg(feature = "postgres")]
            Self::Postgres(account) => account.write(token, balance).await?,
        }
        Ok(())
    }
}

pub(crate) struct Memory {
    balance: i64,
    newest: Option<FencingToken>,
}

impl Memory {
    fn access(&mut self, token: FencingToken) -> Result<&mut i64, String> {
        if self.newest.is_some_and(|newest| token < newest) {
            return Err(format!("token {token} is lower than the newest one"));
        }
        self.newest = Some(token);
        Ok(&mut self.balance)
    }
}

#[cfg(feature = "mysql")]
mod in_mysql {
    use std::error::Error;

    use lock_mysql::sqlx::mysql::MySqlPool;
    use lock_mysql::sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};
    use polylock::FencingToken;
    use polylock::mysql::{Fence, MySqlConfig, schema};

    /// The row 7 of a table.
    pub(crate) struct Account {
        pool: MySqlPool,
        fence: Fence,
    }

    impl Account {
        pub(crate) async fn open(url: &str, balance: i64) -> Result<Self, Box<dyn Error>> {
            let pool = MySqlPool::connect(url).await?;
            // An application would have made its tables before.
            let fences = schema::fences(MySqlConfig::DEFAULT_TABLE)?;
            raw_sql(AssertSqlSafe(fences)).execute(&pool).await?;
            raw_sql("CREATE TABLE IF NOT EXISTS example_accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB")
                .execute(&pool)
                .await?;
            query("REPLACE INTO example_accounts VALUES (7, ?)")
                .bind(balance)
                .execute(&pool)
                .await?;
            let fence = Fence::new();
            Ok(Self { pool, fence })
        }

        pub(crate) async fn read(&self, token: FencingToken) -> Result<i64, Box<dyn Error>> {
            let mut tx = self.pool.begin().await?;
            self.fence.enter(&mut tx, "accounts/7", token).await?;
            let balance = query_scalar("SELECT balance FROM example_accounts WHERE id = 7")
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(balance)
        }

        pub(crate) async fn write(&self, token: FencingToken, balance: i64) -> Result<(), Box<dyn Error>> {
            let mut tx = self.pool.begin().await?;
            self.fence.enter(&mut tx, "accounts/7", token).await?; // dropping the transaction rolls back
            query("UPDATE example_accounts SET balance = ? WHERE id = 7")
                .bind(balance)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(())
        }
    }
}

#[cfg(feature = "postgres")]
mod in_postgres {
    use std::error::Error;

    use lock_postgres::tokio_postgres::{self, Client, NoTls};
    use polylock::FencingToken;
    use polylock::postgres::{Fence, PostgresConfig, schema};

    /// The row 7 of a table.
    pub(crate) struct Account {
        client: Client,
        fence: Fence,
    }

    impl Account {
        pub(crate) async fn open(url: &str, balance: i64) -> Result<Self, Box<dyn Error>> {
            // The driver does not know polylock's parameters.
            let url = url.split('?').next().unwrap_or(url);
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection); // ends with the client
            // An application would have made its tables before.
            client
                .batch_execute(&schema::fences(None, PostgresConfig::DEFAULT_TABLE)?)
                .await?;
            client
                .batch_execute(
                    "CREATE TABLE IF NOT EXISTS example_accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
                )
                .await?;
            let upsert = "INSERT INTO example_accounts VALUES (7, $1) ON CONFLICT (id) DO UPDATE SET balance = $1";
            client.execute(upsert, &[&balance]).await?;
            let fence = Fence::new();
            Ok(Self { client, fence })
        }

        pub(crate) async fn read(&mut self, token: FencingToken) -> Result<i64, Box<dyn Error>> {
            let mut tx = self.client.transaction().await?;
            self.fence.enter(&mut tx, "accounts/7", token).await?;
            let row = tx
                .query_one("SELECT balance FROM example_accounts WHERE id = 7", &[])
                .await?;
            tx.commit().await?;
            Ok(row.get(0))
        }

        pub(crate) async fn write(&mut self, token: FencingToken, balance: i64) -> Result<(), Box<dyn Error>> {
            let mut tx = self.client.transaction().await?;
            self.fence.enter(&mut tx, "accounts/7", token).await?; // dropping the transaction rolls back
            tx.execute("UPDATE example_accounts SET balance = $1 WHERE id = 7", &[&balance])
                .await?;
            tx.commit().await?;
            Ok(())
        }
    }
}
