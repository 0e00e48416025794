//! The errors of lock waits and of deadlocks (1205 and 1213), in place of each statement in turn: whatever becomes of the
//! request, nothing is left behind, nobody believes in a hold that another one has, and no token falls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, FencingToken, Guard, Locker, Result};
use lock_mysql::{MySqlConfig, Strategy};
use testbed::assert_safe;
use testbed::steady::AT_MOST;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::support::refusals::{Refusal, RefusingProxy};
use crate::support::*;

/// Whatever a request leaves behind lasts for so long.
const TTL: Duration = secs(120);
/// How many runs go on at the same time.
const AT_ONCE: usize = 6;

#[testbed::test]
async fn of_a_row_lock() {
    LocalSet::new()
        .run_until(at_every_statement(Strategy::Row, false))
        .await;
}

#[testbed::test]
async fn of_a_lease() {
    LocalSet::new()
        .run_until(at_every_statement(Strategy::Lease, false))
        .await;
}

#[testbed::test]
async fn of_a_first_contact_that_makes_the_tables() {
    for strategy in [Strategy::Row, Strategy::Lease] {
        LocalSet::new().run_until(at_every_statement(strategy, true)).await;
    }
}

/// Refuses the first statement, then the second, and so on, until there are no more.
async fn at_every_statement(strategy: Strategy, makes_tables: bool) {
    let fixture = Arc::new(Fixture::shared().await);
    Refusal::prepare(&fixture).await;
    let other = lock_mysql::backend(fixture.config().with_strategy(strategy)).unwrap();
    let other = patient(other);
    other.connect().await.unwrap();
    let mut used = Vec::new();
    for refusal in Refusal::ALL {
        let (mut runs, mut at, mut refused) = (JoinSet::new(), 1, 0);
        loop {
            while runs.len() < AT_ONCE {
                runs.spawn_local(one_run(
                    fixture.clone(),
                    other.clone(),
                    strategy,
                    makes_tables,
                    refusal,
                    at,
                ));
                at += 1;
            }
            let proxy = runs.join_next().await.expect("some run").unwrap();
            // It had fewer statements. What goes on in the background makes the number vary.
            if proxy.refused().is_none() {
                break;
            }
            refused += 1;
            used.push(proxy);
        }
        used.extend(runs.join_all().await);
        assert!(refused >= if makes_tables { 20 } else { 50 }, "{refusal:?} {refused}");
        println!("{strategy:?}, {refusal:?}: {refused} statements");
    }
    // The one on which waiters sleep may stay open until that sleep is over.
    let ended = async {
        while used.iter().any(|proxy| proxy.open() > 0) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    all_soon("without connections", ended).await;
}

/// A client for which a busy machine may take longer than the default timeout.
fn patient(backend: Arc<dyn DistributedLock>) -> Locker {
    Locker::from_backend(backend)
        .with_ttl(TTL)
        .with_operation_timeout(AT_MOST)
}

async fn one_run(
    fixture: Arc<Fixture>,
    other: Locker,
    strategy: Strategy,
    makes_tables: bool,
    refusal: Refusal,
    at: usize,
) -> RefusingProxy {
    let proxy = RefusingProxy::new(&fixture, refusal, at).await;
    let config = MySqlConfig::from_url(&proxy.url(&fixture)).unwrap();
    let config = config.with_strategy(strategy).with_response_timeout(secs(5));
    let (config, other) = match makes_tables {
        false => (config.with_table(&fixture.table), other),
        true => {
            static TABLES: AtomicU32 = AtomicU32::new(0);
            let table = format!("{}_{}", fixture.table, TABLES.fetch_add(1, Ordering::Relaxed));
            let other = fixture.config().with_strategy(strategy).with_table(&table);
            let other = patient(lock_mysql::backend(other).unwrap());
            (config.with_table(&table), other)
        }
    };
    let run = Run {
        fixture,
        backend: lock_mysql::backend(config).unwrap(),
        other,
        name: format!("{strategy:?} {refusal:?} {at}"),
        newest: 0,
        proxy,
        is_lease: strategy == Strategy::Lease,
    };
    run.of_all_requests(makes_tables).await
}

struct Run {
    fixture: Arc<Fixture>,
    backend: Arc<dyn DistributedLock>,
    /// Which nothing goes wrong for.
    other: Locker,
    name: String,
    /// The largest token that anybody had.
    newest: u64,
    proxy: RefusingProxy,
    is_lease: bool,
}

impl Run {
    async fn of_all_requests(mut self, makes_tables: bool) -> RefusingProxy {
        let client = Locker::from_backend(self.backend.clone()).with_ttl(TTL).with_passes(1);
        self.check(client.connect().await);
        self.exclusively(&client).await;
        if !makes_tables {
            self.waits(&client).await;
            self.together(&client).await;
            self.check(client.status(&self.name).await.map(drop));
            // Tokens ahead of the server's clock are committed apart.
            let floor = FencingToken::new(self.newest + 3_600_000_000).unwrap();
            let ahead = Locker::from_backend(self.backend.clone())
                .with_ttl(TTL)
                .with_token_floor(floor);
            if let Some(guard) = self.check(ahead.lock(&self.name).acquire_within(PATIENCE).await) {
                assert_safe!(guard.token() > floor, "{}", self.says());
                self.alone(&guard).await;
                self.check(guard.release().await);
            }
            self.check(soon("shut down", ahead.shutdown()).await);
            drop(ahead);
        }
        self.check(soon("shut down", client.shutdown()).await);
        drop(client);
        self.nothing_is_left().await
    }

    /// Acquires, renews and releases, twice while another caller of the process waits on other terms.
    async fn exclusively(&mut self, client: &Locker) {
        if let Some(guard) = self.check(client.lock(&self.name).try_acquire().await).flatten() {
            self.alone(&guard).await;
            self.check(guard.release().await);
        }
        let Some(mut guard) = self.check(client.lock(&self.name).acquire_within(PATIENCE).await) else {
            return;
        };
        self.alone(&guard).await;
        self.check(guard.extend(TTL + secs(10)).await);
        self.alone(&guard).await;
        for label in ["first", "second"] {
            let next = client.lock(&self.name).label(label).ttl(TTL + secs(20));
            let waiting = tokio::spawn(async move { next.acquire_within(PATIENCE).await });
            tokio::task::yield_now().await;
            self.check(guard.release().await);
            match self.check(waiting.await.unwrap()) {
                Some(next) => guard = next,
                None => return,
            }
            self.alone(&guard).await;
        }
        drop(guard);
    }

    /// Waits for another client.
    async fn waits(&mut self, client: &Locker) {
        let theirs = self.theirs().await;
        let lock = client.lock(&self.name).hold_at_least(Duration::from_millis(10));
        let lock = if self.is_lease { lock } else { client.lock(&self.name) };
        let waiting = tokio::spawn(async move { lock.acquire_within(PATIENCE).await });
        let (table, mut observer) = (&self.fixture.table, self.fixture.observer().await);
        let hex: String = self.name.bytes().map(|byte| format!("{byte:02x}")).collect();
        until("waiting", async || {
            let waits = match self.is_lease {
                true => {
                    let marked = format!(
                        "SELECT COUNT(*) FROM {table}_leases WHERE name='{}' AND wanted>0",
                        self.name
                    );
                    observer.number(&marked).await > 0
                }
                false => {
                    let statements = observer.statements().await;
                    let waits = |sql: &String| sql.contains(&hex) && sql.ends_with("FOR UPDATE");
                    statements.iter().any(waits)
                }
            };
            waits || waiting.is_finished()
        })
        .await;
        theirs.release().await.unwrap();
        if let Some(guard) = self.check(waiting.await.unwrap()) {
            self.alone(&guard).await;
            self.check(guard.release().await);
        }
    }

    /// As a reader; where they are there, as one of many permits and as a writer that becomes a reader.
    async fn together(&mut self, client: &Locker) {
        let lock = client.rw_lock(&self.name);
        if let Some(guard) = self.check(lock.read().acquire_within(PATIENCE).await) {
            self.alone(&guard).await;
            self.check(guard.extend(TTL + secs(10)).await);
            self.alone(&guard).await;
            self.check(guard.release().await);
        }
        if !self.is_lease {
            return;
        }
        if let Some(mut guard) = self.check(lock.write().acquire_within(PATIENCE).await) {
            self.alone(&guard).await;
            self.check(guard.downgrade().await);
            self.alone(&guard).await;
            self.check(guard.release().await);
        }
        let semaphore = client.semaphore(&self.name, 3);
        if let Some(guard) = self.check(semaphore.permits(2).acquire_within(PATIENCE).await) {
            self.alone(&guard).await;
            self.check(guard.release().await);
        }
    }

    /// Whoever believes in its hold has it, against a writer; and its token is the largest.
    async fn alone(&mut self, guard: &Guard) {
        let token = guard.token().as_u64();
        assert_safe!(token >= self.newest, "{token} after {}: {}", self.newest, self.says());
        self.newest = token;
        if guard.check().is_err() {
            return;
        }
        if let Some(theirs) = self.other.lock(&self.name).try_acquire().await.unwrap() {
            assert_safe!(guard.check().is_err(), "two have it: {}", self.says());
            assert_safe!(theirs.token().as_u64() > self.newest, "{}", self.says());
            self.newest = theirs.token().as_u64();
            theirs.release().await.unwrap();
        }
    }

    /// A hold of the other client's, which gets it long before anything that was left behind would expire.
    async fn theirs(&mut self) -> Guard {
        let theirs = self.other.lock(&self.name).acquire_within(AT_MOST).await;
        let theirs = theirs.unwrap_or_else(|error| panic!("{error:?}: {}", self.says()));
        assert_safe!(theirs.token().as_u64() > self.newest, "{}", self.says());
        self.newest = theirs.token().as_u64();
        theirs
    }

    /// What came of a request, if it did not fail. An error says that it may be tried again.
    fn check<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let kinds = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Lost];
                assert!(kinds.contains(&error.kind()), "{error:?}: {}", self.says());
                None
            }
        }
    }

    async fn nothing_is_left(mut self) -> RefusingProxy {
        self.theirs().await.release().await.unwrap();
        self.proxy
    }

    fn says(&self) -> String {
        let Self { name, proxy, .. } = self;
        format!(
            "{name}, refused: {:?}, of {}\n  {}",
            proxy.refused(),
            proxy.statements(),
            proxy.last_statements()
        )
    }
}
