//! Everything that an application names is in `polylock`.

use polylock::{LockOptions, Locker, MemoryBackend, Mode, OwnHold};

#[test]
fn the_options_of_a_lock() {
    let options: LockOptions = Locker::new(MemoryBackend::new()).lock("a").options();
    assert_eq!(options.mode, Mode::Exclusive);
}

#[test]
fn the_holds_of_a_process() -> polylock::Result<()> {
    let holds: Vec<OwnHold> = Locker::new(MemoryBackend::new()).holds()?;
    assert_eq!(holds, []);
    Ok(())
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
    use polylock::mysql::{MySqlConfig, RowLockBackend, Tls};

    let backend = RowLockBackend::new(MySqlConfig::from_url("mysql://app@db/shop")?.with_tls(Tls::new()))?;
    assert!(Locker::new(backend).capabilities().durable_tokens);
    Ok(())
}

#[test]
#[cfg(feature = "zookeeper")]
fn zookeeper() -> polylock::Result<()> {
    use polylock::zookeeper::{HeartbeatKind, ZooKeeperBackend, ZooKeeperConfig};

    let config = ZooKeeperConfig::new(["zk1", "zk2"]).with_open_acl();
    let backend = ZooKeeperBackend::new(config.with_heartbeat(HeartbeatKind::Write))?;
    assert!(Locker::new(backend).capabilities().fifo);
    Ok(())
}
