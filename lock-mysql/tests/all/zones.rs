//! A server whose system's time zone sets the clock forward and back, and whose own time zone is changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::Locker;
use lock_mysql::{MySqlConfig, Strategy};
use testbed::{Clock, MariaDb};
use tokio::time::{Instant, sleep_until};

use crate::support::proxy::Proxy;
use crate::support::*;

/// In 2027 this zone sets the clock forward at the first of these moments, and back at the second.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const CHANGES: [u64; 2] = [1_806_195_600, 1_824_944_400];

const TTL: Duration = secs(3);
/// Of the hold that is renewed. A busy machine may stand still for a while between two renewals.
const RENEWED_TTL: Duration = secs(5);
/// How long before the change a hold begins.
const BEFORE: Duration = secs(1);

#[testbed::test]
async fn no_hold_ends_early_or_late_when_the_time_zone_changes_its_offset() {
    let clock = Clock::new().unwrap();
    let server = MariaDb::new().clock(&clock).time_zone(ZONE).start().await.unwrap();
    assert!(
        !server.is_external(),
        "this test needs a server of its own: unset POLYLOCK_MYSQL_URL"
    );
    let fixture = Fixture::on(server);
    let mut newest = [0; 2];
    for change in CHANGES {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ahead = i128::from(change) * 1_000_000_000 - i128::try_from((now + BEFORE).as_nanos()).unwrap();
        clock.set(i64::try_from(ahead).unwrap()).unwrap();
        let before = offset(&fixture).await;
        let [row, lease] = &mut newest;
        tokio::join!(
            hold_over_the_change(&fixture, Strategy::Row, row),
            hold_over_the_change(&fixture, Strategy::Lease, lease)
        );
        let after = offset(&fixture).await;
        assert_eq!(before.abs_diff(after), 60, "minutes: the change took place");
    }
}

/// What a session sees that sets no time zone of its own, in minutes. It never is behind UTC.
async fn offset(fixture: &Fixture) -> u64 {
    let mut observer = fixture.observer().await;
    observer.run("SET SESSION time_zone='SYSTEM'").await;
    observer.number("TIMESTAMPDIFF(MINUTE,UTC_TIMESTAMP(),NOW())").await
}

/// `newest`: the largest token so far.
async fn hold_over_the_change(fixture: &Fixture, strategy: Strategy, newest: &mut u64) {
    let proxy = Proxy::of(fixture).await;
    let locker_at = |config: MySqlConfig| {
        let backend = lock_mysql::backend(config.with_strategy(strategy)).unwrap();
        Locker::from_backend(backend).with_ttl(secs(30))
    };
    let locker = || locker_at(fixture.config());
    let (first, second, silent) = (locker(), locker(), locker_at(proxy.config(fixture)));
    silent.connect().await.unwrap();
    let started = Instant::now();
    let renewed = first.lock("renewed").ttl(RENEWED_TTL).acquire().await.unwrap();
    let asked = Instant::now();
    // The server alone ends it.
    let fixed = silent.lock("fixed").ttl(TTL).fixed_lease().acquire().await.unwrap();
    proxy.stall();
    let mut observer = fixture.observer().await;
    // Sessions that begin from now on are half a day behind.
    observer.run("SET GLOBAL time_zone='-12:00'").await;
    let next = soon("free", second.lock("fixed").acquire()).await.unwrap();
    let took = asked.elapsed();
    assert!(took >= TTL, "{strategy:?}: a hold of {TTL:?} ended after {took:?}");
    assert!(
        took < TTL + secs(20),
        "{strategy:?}: a hold of {TTL:?} ended after {took:?}"
    );
    assert!(fixed.check().is_err());
    assert!(next.token() > fixed.token(), "{strategy:?}");
    sleep_until(started + BEFORE + RENEWED_TTL).await;
    assert!(renewed.check().is_ok(), "{strategy:?}: it is renewed");
    assert!(
        locker().lock("renewed").try_acquire().await.unwrap().is_none(),
        "{strategy:?}"
    );
    renewed.release().await.unwrap();
    let last = locker().lock("renewed").acquire().await.unwrap();
    let tokens = [fixed.token(), next.token(), last.token()].map(|token| token.as_u64());
    assert!(
        tokens.iter().all(|token| token > newest),
        "{strategy:?}: {tokens:?} after {newest}"
    );
    *newest = tokens.into_iter().max().unwrap();
    next.release().await.unwrap();
    last.release().await.unwrap();
    observer.run("SET GLOBAL time_zone='SYSTEM'").await;
}
