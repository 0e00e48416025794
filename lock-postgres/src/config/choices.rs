//! What a configuration chooses among.

/// How a lock is kept in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A row that says until when it is held: see [`LeaseTableBackend`](crate::LeaseTableBackend). All holds share two
    /// connections. The hold of a process that died ends with its TTL.
    #[default]
    Lease,
    /// An advisory lock of a session: see [`SessionBackend`](crate::SessionBackend). It is free at once when the process dies, and
    /// lost when its connection breaks. No pooler of transactions may be in between.
    Session,
}

/// What stands between this process and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing. Leases also work with a pooler that gives each client a connection of its own. [`Strategy::Session`] does not: it
    /// detects a pooler, and fails to connect.
    #[default]
    None,
    /// A pooler that gives each client a connection of its own to the server, such as PgBouncer with `pool_mode=session`.
    Session,
    /// A pooler that may give each transaction another connection, such as PgBouncer with `pool_mode=transaction`. Statements
    /// are not prepared, and settings are not changed: see ["Behind a pooler"](crate#behind-a-pooler).
    Transaction,
}
