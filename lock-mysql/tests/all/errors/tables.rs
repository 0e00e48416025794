//! Tables that are missing and may not be made, or that cannot keep locks.

use super::*;

#[testbed::test]
async fn a_table_that_may_not_be_made_says_what_to_run() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    let table = &fixture.table;
    observer
        .run(&format!("CREATE USER 'poor_{table}'@'%' IDENTIFIED BY 's3cret'"))
        .await;
    observer
        .run(&format!(
            "CREATE TABLE {table}_other (n INT); GRANT SELECT ON app.{table}_other TO 'poor_{table}'@'%'"
        ))
        .await;
    let url = format!(
        "mysql://poor_{table}:s3cret@{}/app?table={table}",
        fixture.server.address()
    );
    let poor = backend(&url);
    let error = refusal(&poor).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    let statements = error.to_string();
    let statements = statements.split('"').nth(1).expect("statements");
    observer.run(statements).await;
    for table in [table.clone(), format!("{table}_tokens")] {
        observer
            .run(&format!("GRANT SELECT ON app.{table} TO 'poor_{}'@'%'", fixture.table))
            .await;
    }
    let error = refusal(&poor).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("SELECT, INSERT and UPDATE"), "{error}");
    for table in [table.clone(), format!("{table}_tokens")] {
        observer
            .run(&format!(
                "GRANT SELECT, INSERT, UPDATE ON app.{table} TO 'poor_{}'@'%'",
                fixture.table
            ))
            .await;
    }
    poor.connect().await.unwrap();
    let granted = grant(&poor, "a", secs(10)).await;
    poor.abandon(&granted.request).await.unwrap();
    grant(&poor, "a", secs(10)).await.release().await;
}

#[testbed::test]
async fn a_table_without_row_locks_is_refused() {
    let fixture = Fixture::shared().await;
    let table = &fixture.table;
    let columns = "name VARBINARY(512) NOT NULL PRIMARY KEY, token BIGINT UNSIGNED NOT NULL";
    fixture
        .observer()
        .await
        .run(&format!("CREATE TABLE {table} ({columns}) ENGINE=MyISAM"))
        .await;
    let error = refusal(&fixture.backend()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("InnoDB"), "{error}");
}

#[testbed::test]
async fn a_table_of_another_shape_is_refused() {
    let fixture = Fixture::shared().await;
    fixture
        .observer()
        .await
        .run(&format!(
            "CREATE TABLE {} (id INT PRIMARY KEY) ENGINE=InnoDB",
            fixture.table
        ))
        .await;
    let error = refusal(&fixture.backend()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("other columns"), "{error}");
}
