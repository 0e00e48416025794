//! polylock's ZooKeeper backend
