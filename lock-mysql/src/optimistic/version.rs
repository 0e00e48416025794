//! Which version columns can count changes.

/// Refuses a version that cannot grow: without strict mode, the server would write the same value again.
pub(super) fn check_version(column: &str, version: i128, type_name: &str, is_unsigned: bool) -> sqlx::Result<()> {
    let problem = match largest(type_name, is_unsigned) {
        None => "must be an integer: use BIGINT",
        Some(largest) if version >= i128::from(largest) => {
            "has reached the largest value of its type: make the column a BIGINT"
        }
        Some(_) => return Ok(()),
    };
    let message = format!("the version column `{column}`, of type {type_name}, {problem}");
    Err(sqlx::Error::InvalidArgument(message))
}

/// The largest value of a column, by the driver's name of its type; `None` for one that is no integer.
pub(super) fn largest(type_name: &str, is_unsigned: bool) -> Option<u64> {
    let bits = match type_name.trim_end_matches(" UNSIGNED") {
        // The driver's name of TINYINT(1).
        "BOOLEAN" | "TINYINT" => 8,
        "SMALLINT" => 16,
        "MEDIUMINT" => 24,
        "INT" => 32,
        "BIGINT" => 64,
        _ => return None,
    };
    Some(u64::MAX >> (64 - bits) >> u32::from(!is_unsigned))
}
