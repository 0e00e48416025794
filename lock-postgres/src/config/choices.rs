//! What a configuration chooses among.

/// How a lock is kept in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A row that says until when it is held: see [`LeaseTableBackend`](crate::LeaseTableBackend). All holds share two
    /// connections. The hold of a process that died ends with its TTL.
    #[default]
    Lease,
}

/// What stands between this process and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or something that gives each client a connection of its own to the server, such as PgBouncer with
    /// `pool_mode=session`.
    #[default]
    None,
    /// A pooler that may give each transaction another connection, such as PgBouncer with `pool_mode=transaction`. Statements
    /// are not prepared, and settings are not changed: see ["Behind a pooler"](crate#behind-a-pooler).
    Transaction,
}
