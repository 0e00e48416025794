//! A fence at a server that lags behind its leader.

use std::pin::pin;

use lock_core::FencingToken;
use lock_zookeeper::Fence;
use zookeeper_client::Acls;

use super::*;

/// The token has entered already, so that entering writes nothing.
#[testbed::test]
async fn who_enters_at_a_follower_that_lags_reads_what_was_written_before() {
    const PATH: &str = "/stock";
    let (ensemble, leader) = ensemble(TOO_LATE_TO_NOTICE).await;
    let [follower, _] = followers(leader);
    let (first, next) = (observer(&ensemble[leader]).await, observer(&ensemble[follower]).await);
    let bystander = observer(&ensemble[follower]).await;
    let acls = Acls::anyone_all();
    let token = FencingToken::new(1).unwrap();
    let options = CreateMode::Persistent.with_acls(acls);
    first.create(PATH, b"10", &options).await.unwrap();
    let entered = Fence::new(&first, PATH, acls).unwrap().enter(token).await.unwrap();
    bystander.sync(PATH).await.unwrap();

    ensemble.cut(follower, leader);
    entered.set("9").await.unwrap();
    let fence = Fence::new(&next, PATH, acls).unwrap();
    let mut entering = pin!(fence.enter(token));
    for _ in 0..20 {
        tokio::select! {
            biased;
            entered = &mut entering => panic!("it did not ask the leader: {entered:?}"),
            old = bystander.get_data(PATH) => assert_eq!(old.unwrap().0, b"10"),
        }
    }
    ensemble.heal();
    let entered = happens("entered", entering).await.unwrap();
    assert_eq!(entered.get().await.unwrap(), b"9");
}
