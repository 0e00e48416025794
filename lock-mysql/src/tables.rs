//! The tables of this crate, and the statements that make them.

use lock_kit::tables::Table;

pub(crate) fn all(table: &str) -> Vec<Table> {
    let mut all = Vec::from(row_lock_tables(table));
    all.extend(lease_tables(table));
    all.push(fence_table(&format!("{table}_fences")));
    all
}

pub(crate) fn row_lock_tables(table: &str) -> [Table; 2] {
    [
        new_table(
            table,
            "`name` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `token` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             `connection` BIGINT UNSIGNED NULL, \
             `label` VARBINARY(255) NULL, \
             `expires` BIGINT UNSIGNED NULL",
        ),
        new_table(
            &format!("{table}_tokens"),
            "`name` VARBINARY(512) NOT NULL PRIMARY KEY, `token` BIGINT UNSIGNED NOT NULL",
        ),
    ]
}

pub(crate) fn lease_tables(table: &str) -> [Table; 2] {
    [
        new_table(
            &format!("{table}_leases"),
            "`name` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `holder` VARBINARY(32) NULL, \
             `label` VARBINARY(255) NULL, \
             `expires` BIGINT NOT NULL DEFAULT 0, \
             `term` BIGINT NOT NULL DEFAULT 0, \
             `token` BIGINT NOT NULL DEFAULT 0, \
             `last_token` BIGINT NOT NULL DEFAULT 0, \
             `waiter` VARBINARY(32) NULL, \
             `wanted` BIGINT NOT NULL DEFAULT 0, \
             `sleeper` BIGINT NOT NULL DEFAULT 0",
        ),
        new_table(
            &format!("{table}_lease_holders"),
            "`name` VARBINARY(512) NOT NULL, \
             `holder` VARBINARY(32) NOT NULL, \
             `label` VARBINARY(255) NULL, \
             `permits` INT UNSIGNED NOT NULL, \
             `of` INT UNSIGNED NOT NULL, \
             `expires` BIGINT NOT NULL, \
             `term` BIGINT NOT NULL, \
             `token` BIGINT NOT NULL, \
             PRIMARY KEY (`name`,`holder`)",
        ),
    ]
}

/// `writer` and `reader` are the newest tokens that have entered. `entries` counts the writers: see the verdict in `fence`.
pub(crate) fn fence_table(name: &str) -> Table {
    new_table(
        name,
        "`resource` VARBINARY(512) NOT NULL PRIMARY KEY, \
         `writer` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
         `reader` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
         `entries` BIGINT UNSIGNED NOT NULL DEFAULT 0",
    )
}

fn new_table(name: &str, columns: &str) -> Table {
    Table {
        name: name.to_owned(),
        create: format!("CREATE TABLE IF NOT EXISTS `{name}` ({columns}) ENGINE=InnoDB"),
    }
}
