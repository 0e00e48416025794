//! The facade, as an application uses it: its examples, its pages, and what it says of wrong settings.

#[cfg(all(
    feature = "blocking",
    any(feature = "redis", feature = "mysql", feature = "zookeeper")
))]
mod blocking;
#[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
mod connect;
mod docs;
mod examples;
#[cfg(feature = "mysql")]
mod fencing;
mod flash_sale;
mod metrics;
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod moving;
mod names;
#[cfg(all(feature = "mysql", feature = "zookeeper", feature = "quorum"))]
mod one_server;
#[cfg(all(feature = "redis", feature = "quorum"))]
mod quorum;
#[cfg(all(
    feature = "redis",
    feature = "mysql",
    feature = "postgres",
    feature = "zookeeper",
    feature = "quorum"
))]
mod required;
#[cfg(all(feature = "redis", feature = "quorum"))]
mod rotation;
#[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
mod wrong_server;
