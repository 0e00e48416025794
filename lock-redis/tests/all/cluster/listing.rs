//! Lists while other nodes become masters.

use lock_core::backend::{DistributedLock, ListFrom};
use lock_redis::RedisBackend;

use super::Fixture;
use crate::support::{LONG, eventually, granted, in_the_end, in_the_end_granted, request};

async fn listed(backend: &RedisBackend) -> Vec<String> {
    let (mut names, mut next) = (Vec::new(), Some(ListFrom::all()));
    while let Some(from) = next {
        let page = in_the_end(async || backend.list(&from, 1000).await).await;
        names.extend(page.names.iter().map(|name| name.as_str().to_owned()));
        next = page.next;
    }
    names.sort();
    names
}

/// Of a process that sends no other requests, so that no node says to it that a slot is elsewhere.
#[testbed::test]
async fn a_list_reads_the_masters_of_now() {
    let fixture = Fixture::own(true).await;
    let (backend, observer) = (fixture.backend(), fixture.backend());
    let [first, second] = [fixture.name_on(1).await, fixture.name_on(2).await];
    granted(&backend, &request(&second, LONG).0).await;
    assert_eq!(listed(&observer).await, [second.as_str()]);

    // A planned fail-over. The former master leaves the cluster.
    fixture.cluster.fail_over_to(4).await.expect("it takes over");
    let id = fixture.call(1, &["CLUSTER", "MYID"]).await;
    fixture.call(1, &["CLUSTER", "RESET"]).await;
    for node in [0, 2, 3, 4, 5] {
        fixture.call(node, &["CLUSTER", "FORGET", &id]).await;
    }
    in_the_end_granted(&fixture.backend(), &request(&first, LONG).0).await;
    let mut both = [first.as_str(), second.as_str()];
    both.sort();
    assert_eq!(listed(&observer).await, both);

    // A master dies.
    eventually("its replica has the name", async || {
        fixture.call(5, &["KEYS", "*"]).await.contains(&fixture.key(&second))
    })
    .await;
    fixture.cluster[2].kill().expect("it is ours");
    assert_eq!(fixture.master_of(&second).await, 5);
    assert_eq!(listed(&observer).await, both);
}
