//! Entering a new resource makes its row, and the rows of transactions that roll back vanish again.

use lock_core::ErrorKind;
use sqlx::mysql::MySqlPool;
use sqlx::{Row, query};
use testbed::Server;
use tokio::task::JoinSet;

use super::{Stock, stale, token};
use crate::support::*;

on_both_servers!(a_deadlock_after_the_maker_of_a_row_rolled_back_is_cured_by_another_run);

/// The only way into a deadlock: the maker of the row rolls back, and each who waited for it locks the gap in which the row was,
/// before it makes the row itself. It is told to run its transaction again, and that helps.
async fn a_deadlock_after_the_maker_of_a_row_rolled_back_is_cured_by_another_run(server: Server) {
    let stock = Stock::new(&server).await;
    let pool = MySqlPool::connect(&stock.fixture.server.url()).await.unwrap();
    let mut observer = stock.fixture.observer().await;
    for round in 0..3_u8 {
        let mut maker = pool.begin().await.unwrap();
        stock.fence.enter(&mut maker, [round], token(1)).await.unwrap();
        let mut tasks = JoinSet::new();
        for number in 2..=4 {
            let (pool, fence) = (pool.clone(), stock.fence.clone());
            tasks.spawn(async move {
                let mut deadlocks = 0;
                loop {
                    let mut tx = pool.begin().await.unwrap();
                    match fence.enter(&mut tx, [round], token(number)).await {
                        Ok(()) => tx.commit().await.unwrap(),
                        Err(error) if error.kind() == ErrorKind::Unavailable => {
                            assert!(
                                error.is_retryable() && error.to_string().contains("deadlock"),
                                "{error}"
                            );
                            tx.rollback().await.unwrap();
                            deadlocks += 1;
                            continue;
                        }
                        Err(error) => _ = stale(&error),
                    }
                    return deadlocks;
                }
            });
        }
        let table = format!("{}_fences", stock.fixture.table);
        until("waiting for the maker", async || {
            let statements = observer.statements().await;
            let waits = |sql: &&String| sql.contains(&table) && sql.starts_with("INSERT");
            statements.iter().filter(waits).count() == 3
        })
        .await;
        maker.rollback().await.unwrap();
        let deadlocks: usize = soon("entered", tasks.join_all()).await.into_iter().sum();
        println!("{deadlocks} deadlocks");
    }
}

/// With the last deadlock that the server found.
pub(super) async fn innodb_status(stock: &Stock) -> String {
    let mut connection = stock.connect().await;
    let status = query("SHOW ENGINE INNODB STATUS").fetch_one(&mut connection).await;
    status.unwrap().get(2)
}
