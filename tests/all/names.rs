//! Everything that an application names is in `polylock`.

use polylock::{LockOptions, Locker, MemoryBackend, Mode};

#[test]
fn the_options_of_a_lock() {
    let options: LockOptions = Locker::new(MemoryBackend::new()).lock("a").options();
    assert_eq!(options.mode, Mode::Exclusive);
}

#[test]
#[cfg(feature = "redis")]
fn redis() -> polylock::Result<()> {
    use polylock::redis::{Checks, Fence, RedisBackend, RedisConfig};

    let backend = RedisBackend::new(RedisConfig::new("cache", 6379).with_checks(Checks::Refuse))?;
    assert!(backend.findings().is_empty());
    assert!(Fence::<()>::ENTER.contains("KEYS"));
    Ok(())
}

#[test]
#[cfg(feature = "mysql")]
fn mysql() -> polylock::Result<()> {
    use polylock::mysql::{MySqlConfig, RowLockBackend};

    let backend = RowLockBackend::new(MySqlConfig::from_url("mysql://app@db/shop")?)?;
    assert!(Locker::new(backend).capabilities().durable_tokens);
    Ok(())
}

#[test]
#[cfg(feature = "zookeeper")]
fn zookeeper() -> polylock::Result<()> {
    use polylock::zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

    let backend = ZooKeeperBackend::new(ZooKeeperConfig::new(["zk1", "zk2"]).with_open_acl())?;
    assert!(Locker::new(backend).capabilities().fifo);
    Ok(())
}
