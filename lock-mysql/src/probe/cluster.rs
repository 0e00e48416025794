//! Clusters in which several nodes take writes: a row lock is only on the node on which it was taken.

use lock_core::{Error, ErrorKind, Result};
use sqlx::mysql::MySqlRow;

use crate::error::SqlError;
use crate::protocol::column;

/// Asks for the variables that tell. Those that the server does not know are missing in the answer.
pub(super) const VARIABLES: &str =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on','group_replication_single_primary_mode')";

/// The names and values in the answer to [`VARIABLES`].
pub(super) fn variables(rows: &[MySqlRow]) -> Result<Vec<(String, String)>, SqlError> {
    rows.iter()
        .map(|row| {
            Ok((
                column(row, 0, "name of a variable")?,
                column(row, 1, "value of a variable")?,
            ))
        })
        .collect()
}

/// # Errors
/// [`ErrorKind::Misconfigured`] if several nodes take writes, as these variables say.
pub(super) fn check(variables: &[(String, String)]) -> Result<()> {
    let is = |name: &str, values: [&str; 2]| {
        let mut values_of = variables
            .iter()
            .filter(|(variable, _)| variable.eq_ignore_ascii_case(name));
        values_of.any(|(_, value)| values.iter().any(|one| value.eq_ignore_ascii_case(one)))
    };
    let cluster = if is("wsrep_on", ["ON", "1"]) {
        "the server is a node of a Galera cluster (wsrep_on=ON)"
    } else if is("group_replication_single_primary_mode", ["OFF", "0"]) {
        "the server's group replication has several primaries (group_replication_single_primary_mode=OFF)"
    } else {
        return Ok(());
    };
    let message = format!(
        "{cluster}, whose other nodes do not have its row locks: connect all clients to one node and say \
         single_writer=true in the URL, or connect to a server that alone takes writes"
    );
    Err(Error::new(ErrorKind::Misconfigured, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> Result<()> {
        let owned: Vec<_> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        check(&owned)
    }

    #[test]
    fn a_server_that_alone_takes_writes_is_fine() {
        for fine in [
            &[][..],
            &[("wsrep_on", "OFF")],
            &[("group_replication_single_primary_mode", "ON")],
        ] {
            checked(fine).unwrap();
        }
    }

    #[test]
    fn a_cluster_whose_nodes_all_take_writes_is_refused_with_what_to_do() {
        for (variables, names) in [
            (("wsrep_on", "ON"), "Galera"),
            (("WSREP_ON", "1"), "Galera"),
            (("group_replication_single_primary_mode", "OFF"), "several primaries"),
        ] {
            let error = checked(&[variables]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            let said = error.to_string();
            assert!(said.contains(names) && said.contains("single_writer=true"), "{said}");
        }
    }
}
