//! Tables and permissions that the fence needs, and settings of the user's connection and transaction.

use super::*;

on_both_servers!(
    a_missing_table_and_a_missing_permission_say_what_to_do,
    the_settings_of_the_users_connection_do_not_matter,
    a_read_only_transaction_is_to_begin_read_write,
);

async fn a_missing_table_and_a_missing_permission_say_what_to_do(server: Server) {
    let stock = Stock::new(&server).await;
    let table = &stock.fixture.table;
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    let missing = Fence::in_table(format!("{table}_none")).unwrap();
    let error = missing.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("schema::migrate"), "{error}");

    let user = format!("reader_{table}");
    let mut observer = stock.fixture.observer().await;
    observer
        .run(&format!(
            "CREATE USER '{user}'@'%' IDENTIFIED BY 's3cret'; GRANT SELECT ON app.* TO '{user}'@'%'"
        ))
        .await;
    let url = format!("mysql://{user}:s3cret@{}/app", stock.fixture.server.address());
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let error = stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("SELECT, INSERT and UPDATE"), "{error}");
    // With the permissions that the message names.
    observer
        .run(&format!(
            "GRANT SELECT, INSERT, UPDATE ON app.{table}_fences TO '{user}'@'%'"
        ))
        .await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
    stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
    stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
}

async fn the_settings_of_the_users_connection_do_not_matter(server: Server) {
    let stock = Stock::new(&server).await;
    for (number, settings) in (1..).zip([
        "sql_mode=''",
        "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,PIPES_AS_CONCAT'",
        "autocommit=0",
        "completion_type=CHAIN",
        "sql_safe_updates=1",
        "character_set_client=latin1, character_set_connection=utf8mb4",
    ]) {
        let mut connection = stock.connect().await;
        let set = format!("SET SESSION {settings}");
        connection.execute(AssertSqlSafe(set)).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        stock
            .fence
            .enter(&mut tx, "r\\'\"", token(2 * number))
            .await
            .expect(settings);
        let newer = token(2 * number + 1);
        stock
            .fence
            .enter_shared(&mut tx, "r\\'\"", newer)
            .await
            .expect(settings);
        stock
            .fence
            .check_shared(&mut tx, "r\\'\"", newer)
            .await
            .expect(settings);
        let error = stock.fence.enter(&mut tx, "r\\'\"", token(1)).await.unwrap_err();
        stale(&error);
        tx.commit().await.unwrap();
    }
}

async fn a_read_only_transaction_is_to_begin_read_write(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter_shared(&mut tx, RESOURCE, token(1)).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = connection.begin_with("START TRANSACTION READ ONLY").await.unwrap();
    stock.fence.check_shared(&mut tx, RESOURCE, token(1)).await.unwrap();
    for error in [
        stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err(),
        stock.fence.enter_shared(&mut tx, RESOURCE, token(1)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(
            !error.is_retryable() && error.to_string().contains("READ WRITE"),
            "{error}"
        );
    }
}
