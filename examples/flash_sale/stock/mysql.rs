//! The stock in a MySQL: a number in a row, and a row for each sale. Both change in one transaction under a fence, so that they
//! stay equal whichever process is killed. They differ only if an update was lost.

use lock_mysql::sqlx::mysql::{MySqlPool, MySqlPoolOptions, MySqlTransaction};
use lock_mysql::sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};
use polylock::FencingToken;
use polylock::mysql::{Fence, MySqlConfig, schema};

use super::Result;

#[derive(Clone, Debug)]
pub(crate) struct MySqlStock {
    pool: MySqlPool,
    fence: Fence,
    /// Which of the stocks in the tables.
    sale: String,
}

impl MySqlStock {
    pub(crate) async fn create(url: &str, items: u32) -> Result<Self> {
        let stock = Self::open(url, &format!("{:016x}", rand::random::<u64>())).await?;
        let fences = schema::fences(MySqlConfig::DEFAULT_TABLE)?;
        raw_sql(AssertSqlSafe(fences)).execute(&stock.pool).await?;
        raw_sql(
            "CREATE TABLE IF NOT EXISTS flash_sale_stock (sale VARBINARY(16) PRIMARY KEY, amount INT UNSIGNED NOT NULL) \
             ENGINE=InnoDB; \
             CREATE TABLE IF NOT EXISTS flash_sale_sold (id BIGINT AUTO_INCREMENT PRIMARY KEY, sale VARBINARY(16) NOT NULL) \
             ENGINE=InnoDB",
        )
        .execute(&stock.pool)
        .await?;
        query("INSERT INTO flash_sale_stock VALUES (?, ?)")
            .bind(stock.sale.as_bytes())
            .bind(items)
            .execute(&stock.pool)
            .await?;
        Ok(stock)
    }

    pub(crate) async fn open(url: &str, sale: &str) -> Result<Self> {
        let pool = MySqlPoolOptions::new().max_connections(4).connect(url).await?;
        let (fence, sale) = (Fence::new(), sale.to_owned());
        Ok(Self { pool, fence, sale })
    }

    pub(crate) fn place(&self) -> &str {
        &self.sale
    }

    pub(crate) async fn read(&self, token: Option<FencingToken>) -> Result<u32> {
        let mut tx = self.enter(token).await?;
        let left = query_scalar("SELECT amount FROM flash_sale_stock WHERE sale = ?")
            .bind(self.sale.as_bytes())
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(left)
    }

    pub(crate) async fn sell_down_to(&self, left: u32, token: Option<FencingToken>) -> Result<()> {
        let mut tx = self.enter(token).await?;
        query("UPDATE flash_sale_stock SET amount = ? WHERE sale = ?")
            .bind(left)
            .bind(self.sale.as_bytes())
            .execute(&mut *tx)
            .await?;
        query("INSERT INTO flash_sale_sold (sale) VALUES (?)")
            .bind(self.sale.as_bytes())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// A transaction that no older holder can write after.
    async fn enter(&self, token: Option<FencingToken>) -> Result<MySqlTransaction<'static>> {
        let mut tx = self.pool.begin().await?;
        if let Some(token) = token {
            self.fence.enter(&mut tx, "productA", token).await?;
        }
        Ok(tx)
    }

    pub(crate) async fn close(self) -> Result<(u32, Option<u32>)> {
        let left = self.read(None).await?;
        let sold: i64 = query_scalar("SELECT COUNT(*) FROM flash_sale_sold WHERE sale = ?")
            .bind(self.sale.as_bytes())
            .fetch_one(&self.pool)
            .await?;
        for delete in [
            "DELETE FROM flash_sale_stock WHERE sale = ?",
            "DELETE FROM flash_sale_sold WHERE sale = ?",
        ] {
            query(delete).bind(self.sale.as_bytes()).execute(&self.pool).await?;
        }
        self.pool.close().await;
        Ok((left, Some(sold.try_into()?)))
    }
}
