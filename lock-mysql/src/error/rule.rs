//! Errors of triggers and constraints that somebody has added to the lock tables. Some have the numbers of errors of our own
//! statements, as when a trigger writes to a table that is missing: those must not be taken for ours.

use sqlx::mysql::MySqlDatabaseError;

/// The table on which a trigger or a constraint has refused a statement; `None` for any other error.
pub(crate) fn table_whose_rule_refused(error: &sqlx::Error, statement: &str) -> Option<String> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    let (number, state) = (error.number(), error.code().unwrap_or_default());
    let table = changed_table(statement)?;
    is_of_a_rule(number, state, error.message(), table).then(|| table.to_owned())
}

fn is_of_a_rule(number: u16, state: &str, message: &str, table: &str) -> bool {
    /// The state of `SIGNAL` for a condition of the user's own, whatever number it sets.
    const USERS_OWN: &str = "45000";
    match number {
        // Signals, and what a trigger may not do.
        1305 | 1370 | 1415 | 1422 | 1442 | 1449 | 1644 | 1645 => true,
        // Unique keys, columns that are not null, foreign keys, and checks: of MySQL, of MariaDB.
        1048 | 1062 | 1216 | 1217 | 1451 | 1452 | 3819 | 4025 => true,
        // A table that is missing or not permitted. The server names it, and ours only if our own statement is the reason.
        1142 | 1143 | 1146 => !names(message, table),
        _ => state == USERS_OWN,
    }
}

/// The table that a statement of ours changes.
fn changed_table(statement: &str) -> Option<&str> {
    let before = ["UPDATE `", "INTO `", "FROM `"];
    let starts = before
        .iter()
        .filter_map(|word| Some(statement.find(word)? + word.len()));
    statement[starts.min()?..].split('`').next()
}

/// True if a message has this name, and not only as a part of another name.
fn names(message: &str, table: &str) -> bool {
    let (message, table) = (message.to_ascii_lowercase(), table.to_ascii_lowercase());
    let is_part_of_name =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(byte));
    message.match_indices(&table).any(|(at, found)| {
        let bytes = message.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !is_part_of_name(before) && !is_part_of_name(bytes.get(at + found.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_ours_or_that_of_a_trigger() {
        let missing = |table| is_of_a_rule(1146, "42S02", "Table 'app.polylock_leases' doesn't exist", table);
        assert!(!missing("polylock_leases"));
        // Some servers have all names in small letters.
        assert!(!missing("Polylock_Leases"));
        assert!(missing("polylock"));
        assert!(missing("leases"));
    }

    #[test]
    fn a_condition_of_the_users_own_is_known_whatever_its_number() {
        assert!(is_of_a_rule(1644, "45000", "no", "t"));
        assert!(is_of_a_rule(1213, "45000", "no", "t"));
        assert!(!is_of_a_rule(1213, "40001", "Deadlock found", "t"));
        assert!(!is_of_a_rule(1205, "HY000", "Lock wait timeout exceeded", "t"));
    }

    #[test]
    fn the_table_is_that_which_a_statement_changes() {
        let table = |sql| changed_table(sql);
        assert_eq!(table("UPDATE `a` SET `b`=1"), Some("a"));
        assert_eq!(
            table("INSERT INTO `a` (`name`) VALUES (x'') ON DUPLICATE KEY UPDATE `b`=1"),
            Some("a")
        );
        assert_eq!(table("INSERT IGNORE INTO `a` (`b`) SELECT `c` FROM `d`"), Some("a"));
        assert_eq!(table("DELETE FROM `a` WHERE `b`=1"), Some("a"));
        assert_eq!(table("SELECT `b` FROM `a` FOR UPDATE"), Some("a"));
        assert_eq!(table("CALL raises()"), None);
    }
}
