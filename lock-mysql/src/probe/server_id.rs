//! The identity of a server.

use sqlx::mysql::MySqlRow;

use super::variables;
use crate::error::SqlError;
use crate::protocol::column;

/// MySQL has a `server_uuid`, and newer MariaDB a `server_uid`, which is made of the network address and the port. Cloned servers
/// may have the same. What the server does not know is missing in the answer.
pub(crate) const FACTS: &str =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid','server_uid','server_id','hostname','port')";

/// The second in which the server was started, after the last byte of its `server_id`. It stays the same while the server runs.
pub(crate) const STARTED: &str = "SELECT CAST(UUID_SHORT()>>24 AS UNSIGNED)";

/// From the answers to [`FACTS`] and [`STARTED`].
pub(crate) fn server_id(facts: &[MySqlRow], started: &[MySqlRow]) -> Result<String, SqlError> {
    let missing = SqlError::UnexpectedAnswer("start of the server");
    let started: u64 = column(started.first().ok_or(missing)?, 0, "start of the server")?;
    Ok(joined(variables(facts)?, started))
}

/// The same in whatever order the facts came.
fn joined(mut facts: Vec<(String, String)>, started: u64) -> String {
    facts.sort_unstable();
    let facts = facts
        .iter()
        .map(|(name, value)| format!(" {}={value}", name.to_lowercase()));
    format!("mysql {started:x}{}", facts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_an_order() {
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (port, host) = (fact("port", "3306"), fact("HOSTNAME", "db"));
        let one = joined(vec![port.clone(), host.clone()], 255);
        assert_eq!(one, "mysql ff hostname=db port=3306");
        assert_eq!(joined(vec![fact("hostname", "db"), port], 255), one);
        assert_ne!(joined(vec![host], 256), one);
    }
}
