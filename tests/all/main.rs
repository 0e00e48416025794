//! The facade, as an application uses it.

#[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
mod connect;
mod names;
#[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
mod wrong_server;
