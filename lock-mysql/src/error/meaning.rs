//! What the server's numbers mean for a caller.

use std::borrow::Cow;

use lock_core::ErrorKind;

use super::{OFFLINE, OFFLINE_BY_USER, OFFLINE_FOR_REASON, ROLLED_BACK_BY_GROUP, TIMED_OUT};

/// The kind and the message of the error for a caller, by the server's number.
pub(super) fn meaning_of(code: u16) -> (ErrorKind, Cow<'static, str>) {
    use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
    let (kind, message) = match code {
        1045 | 1698 | 1130 | 1820 | 1862 | 3118 | 4151 => (
            Denied,
            "the MySQL server refuses the login: check user, password and host, and whether the user needs tls=true or a client certificate",
        ),
        1044 | 1142 | 1143 | 1227 | 1370 => (
            Denied,
            "the MySQL user lacks a permission: it needs SELECT, INSERT and UPDATE on the lock tables",
        ),
        1049 => (
            Misconfigured,
            "the database does not exist: create it, or name another in the URL",
        ),
        1054 | 1136 | 1146 | 1364 | 1406 => (
            Misconfigured,
            "the lock table has other columns than it should: drop it, or name another with table=",
        ),
        1235 => (
            Misconfigured,
            "the MySQL server lacks something that locks need, such as GET_LOCK in a Galera cluster: use a server of its own",
        ),
        1104 => (
            Misconfigured,
            "the MySQL server's max_join_size or sql_big_selects refuses what a lock reads: raise it for polylock's user",
        ),
        1665 => (
            Misconfigured,
            "binlog_format=STATEMENT cannot log row locks: set it to ROW or MIXED",
        ),
        1040 | 1203 | 1226 => (
            Unavailable,
            "the MySQL server has no free connection: raise its max_connections",
        ),
        1129 => (Unavailable, "the MySQL server blocks this host: run FLUSH HOSTS there"),
        3159 => (Misconfigured, "the MySQL server demands TLS: add tls=true to the URL"),
        1290 | 1792 | 1836 => (Unavailable, "the MySQL server is read-only: connect to the primary"),
        1021 | 1030 | 1114 | 1180 => (Unavailable, "the MySQL server cannot write: see its log and its disk"),
        1053 | 1317 | 1927 | 3169 | 4031 => (Unavailable, "the MySQL server ended the connection"),
        TIMED_OUT => (
            Unavailable,
            "the lock's row or table is locked by others: see whether a backup or an ALTER TABLE waits there",
        ),
        // Galera's: the node is joining or recovering, or is cut off from the majority.
        1047 => (
            Unavailable,
            "this node of the MySQL cluster takes no statements at the moment: see wsrep_ready and wsrep_cluster_status there",
        ),
        OFFLINE | OFFLINE_FOR_REASON | OFFLINE_BY_USER => (
            Unavailable,
            "the MySQL server is in offline mode and lets administrators in alone: set offline_mode=OFF there after its maintenance",
        ),
        // Group replication rolls back what it cannot pass on, as while a member joins or leaves.
        3100 => (
            Unavailable,
            "the MySQL server's group replication takes no commit at the moment: see its log and \
             performance_schema.replication_group_members",
        ),
        ROLLED_BACK_BY_GROUP => (
            Unavailable,
            "another member of the MySQL group changes the lock's row as well: lead all clients to one member",
        ),
        1213 | 1969 | 3024 | 3572 => (Unavailable, "the lock's row is being waited for elsewhere"),
        1037 | 1038 | 1041 | 1135 => (Unavailable, "the MySQL server is out of memory or threads"),
        _ => {
            return (
                Unexpected,
                format!("the MySQL server refuses a statement with error {code}").into(),
            );
        }
    };
    (kind, message.into())
}
