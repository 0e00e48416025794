//! The suite on every backend here, and the suite's proof of itself.

use conformance_tests::{__for_each_mutant, WriteSide, conformance};

use harness::memory::MemoryHarness;
use harness::mysql_lease::LeaseTableHarness;
use harness::mysql_row::{Hostile, MySql9, MySql9Hostile, OverTls as MySqlOverTls, OwnMariaDb, RowLockHarness};
use harness::redis::{LeastPrivilege, OverTls, Own, Redis8, RedisHarness, Valkey9};
use harness::zookeeper::{LeastAcl, OverTls as ZooKeeperOverTls, Standalone, Standalone39, Three, ZooKeeperHarness};

mod harness;
mod mutants;

conformance!(memory, MemoryHarness);
conformance!(one_permit memory_permit, MemoryHarness);
conformance!(subject memory_write, WriteSide<MemoryHarness>);
conformance!(redis, RedisHarness<Own>);
conformance!(one_permit redis_permit, RedisHarness<Own>);
conformance!(redis_acl, RedisHarness<LeastPrivilege>);
conformance!(redis_tls, RedisHarness<OverTls>);
conformance!(redis8, RedisHarness<Redis8>);
conformance!(valkey9, RedisHarness<Valkey9>);
conformance!(mysql_row, RowLockHarness<OwnMariaDb>);
conformance!(mysql_row_tls, RowLockHarness<MySqlOverTls>);
conformance!(mysql9_row, RowLockHarness<MySql9>);
conformance!(mysql_row_hostile, RowLockHarness<Hostile>);
conformance!(mysql9_row_hostile, RowLockHarness<MySql9Hostile>);
conformance!(mysql_lease, LeaseTableHarness<OwnMariaDb>);
conformance!(mysql9_lease_hostile, LeaseTableHarness<MySql9Hostile>);
conformance!(one_permit mysql_lease_permit, LeaseTableHarness<Hostile>);
conformance!(zookeeper, ZooKeeperHarness<Standalone>);
conformance!(zookeeper39, ZooKeeperHarness<Standalone39>);
conformance!(zookeeper_ensemble, ZooKeeperHarness<Three>);
conformance!(zookeeper_acl, ZooKeeperHarness<LeastAcl>);
conformance!(zookeeper_tls, ZooKeeperHarness<ZooKeeperOverTls>);
conformance!(one_permit zookeeper_permit, ZooKeeperHarness<Standalone>);

__for_each_mutant!(__mutant_tests);
