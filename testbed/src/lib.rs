//! Real lock servers for polylock's tests.
//!
//! ```no_run
//! # async fn example() -> Result<(), testbed::Error> {
//! let redis = testbed::Redis::new().start().await?;
//! println!("{}", redis.url()); // redis://127.0.0.1:23456
//! redis.kill()?; // SIGKILL
//! redis.restart().await?; // same port, same data
//! # Ok(())
//! # }
//! ```
//!
//! Each server has a free loopback port of its own and a data directory of its own. Both are gone when the last
//! clone of its [`Server`] is dropped, and also when the test process panics, exits with the `Server` in a static, or
//! is SIGKILLed: a watchdog process waits for its end.
//!
//! # Which server
//!
//! | | Redis | MySQL | ZooKeeper | PostgreSQL |
//! |---|---|---|---|---|
//! | 1. one that already runs | `POLYLOCK_REDIS_URL` | `POLYLOCK_MYSQL_URL` | `POLYLOCK_ZOOKEEPER_URL` | `POLYLOCK_POSTGRES_URL` |
//! | 2. a program to start | `POLYLOCK_REDIS_SERVER`: the program | `POLYLOCK_MARIADB_DIR`: has `mariadbd` or `mysqld` in `bin/` or `sbin/`, and `share/mysql/` | `POLYLOCK_ZOOKEEPER_DIR`: has the jars; `POLYLOCK_JAVA`: the program, default the installed one, else `java` | `POLYLOCK_POSTGRES_DIR`: has `postgres`, `initdb` and `pg_basebackup` in `bin/`; `POLYLOCK_PGBOUNCER`: the program |
//! | 3. what `cargo xtask servers --install` put into `target/servers` | `redis-server` | `mariadbd` | ZooKeeper and a JRE | PostgreSQL and PgBouncer |
//!
//! [`Edition`]s other than the distribution's own servers have variables of their own: `POLYLOCK_REDIS8_URL`,
//! `POLYLOCK_VALKEY9_SERVER`, `POLYLOCK_MYSQL9_DIR`, `POLYLOCK_ZOOKEEPER39_DIR`, `POLYLOCK_POSTGRES18_DIR`. Without them tests are skipped, visibly,
//! unless `CI` is set. So they are without the other clients: `POLYLOCK_PYTHON` may name a Python that has redis-py and
//! kazoo, and `POLYLOCK_CURATOR_DIR` a folder with `classes/` and `lib/`, as `mvn` makes it of the files in
//! `lock-zookeeper/tests/all/interop/curator`.
//!
//! The first that is there counts. A server that already runs is given out as it is: options do not change it, and
//! whatever would stop it answers [`Error::NotOurs`]. A PostgreSQL needs a `lock_timeout` other than 0 then, for tests as behind a pooler.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod certificates;
mod clock;
mod data;
mod disk;
mod edition;
mod ensemble;
mod error;
mod locate;
mod mariadb;
mod offline;
mod own;
mod port;
mod postgres;
mod preload;
mod process;
mod recipe;
mod redis;
mod server;
mod subscribed;
mod template;
mod url;
mod watchdog;
mod zookeeper;

pub use certificates::{Certificates, Flaw};
pub use clock::Clock;
pub use disk::Disk;
pub use edition::Edition;
pub use ensemble::Ensemble;
pub use error::Error;
pub use locate::{
    CURATOR, Found, KAZOO, REDIS_PY, curator, find, find_extra, installed_dir, is_ci, kazoo, redis_py, stand_in,
};
pub use mariadb::MariaDb;
pub use offline::{is_offline, skip, skip_external, skip_left_out, skip_offline};
pub use port::Port;
pub use postgres::Postgres;
pub use postgres::pgbouncer::PgBouncer;
pub use postgres::standby::Standbys;
pub use redis::Redis;
pub use redis::cluster::Cluster;
pub use redis::replica::Replicated;
pub use redis::sentinel::{Isolated, Watched};
pub use server::Server;
pub use subscribed::{Warnings, subscribe};
pub use template::forget_templates;
pub use testbed_macros::test;
pub use testbed_steady::{self as steady, assert_safe, eventually, happens, in_some_run, stays_below};
pub use zookeeper::ZooKeeper;
