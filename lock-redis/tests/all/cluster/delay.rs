//! `restart_delay` in a cluster: each master has its own.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};

use super::{Fixture, GIVES_UP};
use crate::support::{eventually, granted, in_the_end_granted, refused, release, request, with_config};

/// Longer than any TTL of these tests.
const DELAY: Duration = Duration::from_secs(1200);

impl Fixture {
    pub(super) fn delayed(&self) -> RedisConfig {
        self.config().with_restart_delay(DELAY)
    }

    /// A backend that is connected to masters of which these have their delay behind them.
    pub(super) async fn trusting(&self, trusted: &[usize]) -> RedisBackend {
        with_config(self.delayed()).connect().await.expect("all serve");
        for node in trusted {
            let marks = self.call(*node, &["KEYS", &format!("{}}}member*", self.key(""))]).await;
            assert_ne!(marks, "", "it has one");
            for mark in marks.lines() {
                let value = self.call(*node, &["GET", mark]).await;
                let (identity, _since) = value.rsplit_once(' ').expect("a mark");
                self.call(*node, &["SET", mark, &format!("{identity} 0")]).await;
            }
        }
        let backend = with_config(self.delayed());
        backend.connect().await.expect("all serve");
        backend
    }
}

#[testbed::test]
async fn a_request_that_is_sent_on_to_a_master_in_its_delay_is_not_executed() {
    let fixture = Fixture::shared().await;
    let backend = fixture.trusting(&[0]).await;
    let of = fixture.name_on(0).await;
    let slot = fixture.slot(&of).await;
    let written = async || {
        let command = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"];
        let keys = fixture.call(1, &command).await;
        // Names of other tests may be in this slot, too.
        keys.lines().filter(|key| key.contains(&fixture.key(&of))).count()
    };

    // For this request.
    fixture.cluster.begin_move(slot, 0, 1).await.expect("it begins");
    let error = refused(&backend, &of).await;
    assert!(error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("(restart_delay)"), "{error}");
    assert_eq!(written().await, 0);
    // From now on.
    fixture.cluster.finish_move(slot, 0, 1).await.expect("it moves");
    let error = refused(&backend, &of).await;
    assert!(error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("(restart_delay)"), "{error}");
    assert_eq!(written().await, 0);
    fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
    let later = with_config(fixture.delayed());
    let hold = granted(&later, &request(&of, super::TTL).0).await;
    assert!(release(&hold).await);
}

/// A mark moves with its slot, and says nothing of the other master.
#[testbed::test]
async fn masters_stay_trusted_when_a_slot_with_a_mark_moves() {
    let fixture = Fixture::shared().await;
    fixture.trusting(&[0, 1, 2]).await;
    let marks = fixture
        .call(0, &["KEYS", &format!("{}}}member*", fixture.key(""))])
        .await;
    let number = |mark: &&str| match mark.split_once("}member:") {
        Some((_, number)) => number.parse::<u32>().expect("a number"),
        None => 0,
    };
    // The one that is read first.
    let mark = marks.lines().min_by_key(number).expect("it has one");
    let slot = fixture.cluster.slot_of(mark).await.expect("an answer");
    let all_are_trusted = async || {
        let backend = with_config(fixture.delayed());
        for node in 0..3 {
            let of = fixture.name_on(node).await;
            let hold = granted(&backend, &request(&of, super::TTL).0).await;
            assert!(release(&hold).await);
        }
    };
    for (from, to) in [(0, 1), (1, 0)] {
        // Neither of the two answers with the mark for a while.
        fixture.cluster.begin_move(slot, from, to).await.expect("it begins");
        fixture
            .cluster
            .migrate(&[mark], from, to)
            .await
            .expect("its mark moves");
        all_are_trusted().await;
        fixture.cluster.finish_move(slot, from, to).await.expect("it moves");
        all_are_trusted().await;
    }
}

/// Its masters answer no question then, which does not mean that others have their marks.
#[testbed::test]
async fn a_cluster_that_is_down_keeps_its_marks_and_is_asked_for_few() {
    let fixture = Fixture::own(false).await;
    fixture.trusting(&[0, 1, 2]).await;
    let of = fixture.name_on(0).await;
    let gets = async || {
        let stats = fixture.call(0, &["INFO", "commandstats"]).await;
        let line = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_get:"))
            .unwrap_or_default();
        let number = |name: &str| -> u64 {
            let field = line.split([':', ',']).find_map(|field| field.strip_prefix(name));
            field.map_or(0, |number| number.trim().parse().expect("a number"))
        };
        number("calls=") + number("rejected_calls=")
    };
    for node in [1, 2] {
        fixture.cluster[node].pause().expect("it runs");
    }
    eventually("it is down", async || {
        fixture
            .call(0, &["CLUSTER", "INFO"])
            .await
            .contains("cluster_state:fail")
    })
    .await;
    let before = gets().await;
    let (asked, _control) = request(&of, super::TTL);
    let hasty = fixture.delayed().with_connect_timeout(GIVES_UP);
    let error = with_config(hasty).acquire(&asked).await.expect_err("it is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let asked_for = gets().await - before;
    assert!((1..1000).contains(&asked_for), "{asked_for}: {error}");
    for node in [1, 2] {
        fixture.cluster[node].resume().expect("it is paused");
    }
    eventually("it is up", async || {
        fixture.call(0, &["CLUSTER", "INFO"]).await.contains("cluster_state:ok")
    })
    .await;
    let later = with_config(fixture.delayed());
    let hold = in_the_end_granted(&later, &request(&of, super::TTL).0).await;
    assert!(release(&hold).await);
}
