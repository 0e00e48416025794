//! Distributed locks with fencing tokens: one API over Redis, MySQL and ZooKeeper.
