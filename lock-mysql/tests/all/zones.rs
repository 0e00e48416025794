//! A server whose system's time zone sets the clock forward and back, and whose own time zone is changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Guard, Locker};
use lock_mysql::{MySqlConfig, Strategy};
use testbed::{Clock, MariaDb, assert_safe, in_some_run};
use tokio::time::{Instant, sleep_until};

use crate::support::proxy::Proxy;
use crate::support::*;

/// In 2027 this zone sets the clock forward at the first of these moments, and back at the second.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const CHANGES: [u64; 2] = [1_806_195_600, 1_824_944_400];

const TTL: Duration = secs(3);
/// Of the hold that is renewed. A busy machine may stand still for a while between two renewals.
const RENEWED_TTL: Duration = secs(5);
/// How long before the change the holds begin.
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
    let mut newest = [Newest::default(), Newest::default()];
    for change in CHANGES {
        // If the machine stands still, the change comes before the holds, or the renewed one expires.
        in_some_run("no hold lived through the change", async || {
            set(&clock, change, secs(3600));
            let before = offset(&fixture).await;
            let (row, lease) = tokio::join!(
                Clients::connected(&fixture, Strategy::Row),
                Clients::connected(&fixture, Strategy::Lease)
            );
            let change = set(&clock, change, BEFORE);
            let [of_row, of_lease] = &mut newest;
            let held = tokio::join!(
                row.hold_over_the_change(&fixture, change, of_row),
                lease.hold_over_the_change(&fixture, change, of_lease)
            );
            held.0?;
            held.1?;
            let after = offset(&fixture).await;
            assert_eq!(before.abs_diff(after), 60, "minutes: the change took place");
            Ok::<_, &str>(())
        })
        .await;
    }
}

/// Sets the clock to so long before this moment, and returns when that moment comes.
fn set(clock: &Clock, moment: u64, before: Duration) -> Instant {
    let comes = Instant::now() + before;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ahead = i128::from(moment) * 1_000_000_000 - i128::try_from((now + before).as_nanos()).unwrap();
    clock.set(i64::try_from(ahead).unwrap()).unwrap();
    comes
}

/// What a session sees that sets no time zone of its own, in minutes. It never is behind UTC.
async fn offset(fixture: &Fixture) -> u64 {
    let mut observer = fixture.observer().await;
    observer.run("SET SESSION time_zone='SYSTEM'").await;
    observer.number("TIMESTAMPDIFF(MINUTE,UTC_TIMESTAMP(),NOW())").await
}

/// The largest token of each name that the server keeps, also of earlier runs: each grant has one above it, though the clock goes back before
/// another run.
#[derive(Debug, Default)]
struct Newest {
    renewed: u64,
    fixed: u64,
}

/// The token of a grant, which must be above the newest one before it.
fn above(newest: u64, guard: &Guard) -> u64 {
    let token = guard.token().as_u64();
    assert_safe!(token > newest, "{token} after {newest}");
    token
}

struct Clients {
    strategy: Strategy,
    first: Locker,
    second: Locker,
    /// Over the proxy.
    silent: Locker,
    proxy: Proxy,
}

impl Clients {
    /// Each with its tables and an idle connection.
    async fn connected(fixture: &Fixture, strategy: Strategy) -> Self {
        let proxy = Proxy::of(fixture).await;
        let clients = Self {
            strategy,
            first: locker_at(fixture.config(), strategy),
            second: locker_at(fixture.config(), strategy),
            silent: locker_at(proxy.config(fixture), strategy),
            proxy,
        };
        for locker in [&clients.first, &clients.second, &clients.silent] {
            locker.lock("unused").acquire().await.unwrap().release().await.unwrap();
        }
        clients
    }

    /// `change`: when it comes. Returns an error if the machine stood still.
    async fn hold_over_the_change(
        &self,
        fixture: &Fixture,
        change: Instant,
        newest: &mut Newest,
    ) -> Result<(), &'static str> {
        let strategy = self.strategy;
        let renewed = self.first.lock("renewed").ttl(RENEWED_TTL).acquire().await.unwrap();
        let asked = Instant::now();
        // The server alone ends it.
        let fixed = self.silent.lock("fixed").ttl(TTL).fixed_lease();
        let fixed = fixed.acquire().await.unwrap();
        if Instant::now() >= change {
            for (late, newest) in [(renewed, &mut newest.renewed), (fixed, &mut newest.fixed)] {
                let token = above(*newest, &late);
                // It may have been lost, and a row lock takes its token along.
                if late.release().await.is_ok() {
                    *newest = token;
                }
            }
            return Err("the change came before the holds");
        }
        self.proxy.stall();
        let mut observer = fixture.observer().await;
        // Sessions that begin from now on are half a day behind.
        observer.run("SET GLOBAL time_zone='-12:00'").await;
        let next = soon("free", self.second.lock("fixed").acquire()).await.unwrap();
        let took = asked.elapsed();
        assert!(took >= TTL, "{strategy:?}: a hold of {TTL:?} ended after {took:?}");
        assert!(
            took < TTL + secs(20),
            "{strategy:?}: a hold of {TTL:?} ended after {took:?}"
        );
        assert!(fixed.check().is_err());
        assert!(next.token() > fixed.token(), "{strategy:?}");
        sleep_until(change + RENEWED_TTL).await;
        let tried = locker_at(fixture.config(), strategy);
        let tried = tried.lock("renewed").try_acquire().await.unwrap();
        let lasted = renewed.check().is_ok();
        assert!(tried.is_none() || !lasted, "{strategy:?}: two have it");
        drop(tried);
        let token = above(newest.renewed, &renewed);
        let released = renewed.release().await;
        if released.is_ok() {
            newest.renewed = token;
        }
        let last = locker_at(fixture.config(), strategy);
        let last = last.lock("renewed").acquire().await.unwrap();
        above(newest.fixed, &fixed);
        newest.fixed = above(newest.fixed, &next);
        newest.renewed = above(newest.renewed, &last);
        next.release().await.unwrap();
        last.release().await.unwrap();
        observer.run("SET GLOBAL time_zone='SYSTEM'").await;
        match lasted && released.is_ok() {
            true => Ok(()),
            false => Err("the renewed hold expired"),
        }
    }
}

fn locker_at(config: MySqlConfig, strategy: Strategy) -> Locker {
    let backend = lock_mysql::backend(config.with_strategy(strategy)).unwrap();
    Locker::from_backend(backend).with_ttl(secs(30))
}
