//! Row locks and leases on a real MariaDB, watched over a second, independent connection of the raw driver.

// Those that take longest come first: the harness starts tests in the order of their names.
mod cleaning;
mod connections;
mod contention;
mod delay;
mod disk;
mod errors;
mod every_statement;
mod faults;
mod fence;
mod half_open;
mod holds;
mod hostile;
mod lease;
mod losses;
mod modes;
mod names;
mod optimistic;
mod outage;
mod passes;
mod passwords;
mod refused;
mod rewritten;
mod rules;
mod runtimes;
mod schema;
mod support;
mod switchover;
mod table_locks;
mod tls;
mod tokens;
mod upkeep;
mod waiting;
mod zones;
